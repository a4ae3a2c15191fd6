/*
 * barrier.pml - the worker pool of engine/src/pool.c: creation, jobs, the barrier, waiting, early and late destruction.
 *
 * What stands for what (functions of pool.c):
 *   worker        worker_main           await_change  await_change, futex_wait
 *   is_last       is_last               barrier       cf_pool_barrier, with at_last
 *   release       release_workers       application   cf_pool_create_at, cf_pool_start, cf_pool_wait,
 *   futex_wake    futex_wake_all                      cflow_pool_destroy
 *
 * Memory. What a worker stores without a fence goes into its store buffer, and reaches memory when the memory pleases:
 * in order (x86), or with -DWEAK in any order but for two stores to one place and for releases, which nothing older may
 * pass (what C11 allows the stores of Arm to do). A worker sees its own buffer. A sequentially consistent store, and a
 * read-modify-write that releases, happen when the buffer is empty. The kernel's futex calls fence on both sides. The
 * application stores with sequential consistency alone, so it has no buffer.
 *
 * Left out: loads that happen early. await_change() and is_last() acquire, which forbids them to what comes behind a
 * barrier; between the count of sleepers and the second look at the word stands a sequentially consistent
 * read-modify-write, and the futex call looks once more. A spinning worker either sees the change or goes to sleep, at
 * any time: how long it spins does not matter. Limits of time are left out, so that a lost wake-up is a deadlock and not
 * a delay: the 100 ms of cf_pool_wait() would hide it. INTERRUPTS calls return early without a reason.
 *
 * Checked: no deadlock, hence no lost wake-up; at_last runs alone, when all have arrived; what was written before the
 * barrier by the others, and by at_last, is seen behind it; a job ends on all workers before the application goes on;
 * workers that were never made are not waited for; everything ends.
 *
 * Wrong on purpose, each found (tools/model): -DNO_FENCE -DWAKE_BEFORE_FLAG -DSLEEP_UNCOUNTED -DNO_SECOND_LOOK
 * -DRESET_LATE -DRUNNING_LATE -DSTOP_LATE -DEND_WITHOUT_WAKE -DMISSING_WORKERS_COUNTED, with -DWEAK also
 * -DRELAXED_ARRIVAL -DRELAXED_FLAG.
 */
#ifndef N
#define N 3 /* workers, 2 to 4 */
#endif
#ifndef PER_GROUP
#define PER_GROUP N /* workers of a group, all but the last */
#endif
#ifndef JOBS
#define JOBS 1
#endif
#ifndef ROUNDS
#define ROUNDS 2 /* most barriers of a job */
#endif
#ifndef INTERRUPTS
#define INTERRUPTS 0
#endif
#define GROUPS ((N + PER_GROUP - 1) / PER_GROUP)
#define MEMBERS(g) ((g) < GROUPS - 1 -> PER_GROUP : N - (GROUPS - 1) * PER_GROUP)
#define APPLICATION N

/* ---- memory ------------------------------------------------------------------------------------------------------ */

#define JOB 0     /* pool->job_number */
#define RUNNING 1 /* pool->running */
#define PHASE(g) (2 + (g))
#define ARRIVED(g) (2 + GROUPS + (g))
#define GROUPS_ARRIVED (2 + 2 * GROUPS)
#define AGREED (3 + 2 * GROUPS)              /* written by at_last: whether the job goes on, as session->abort */
#define DATA(odd, w) (4 + 2 * GROUPS + (odd) * N + (w)) /* written by each worker in each round */
#define PLACES (4 + 2 * GROUPS + 2 * N)
#define DEPTH 4 /* of a store buffer: a store into a full one waits */

typedef store_buffer {
    byte count;
    byte at[DEPTH];
    byte value[DEPTH];
    bit release[DEPTH];
}

byte mem[PLACES];
store_buffer pending[N];

#define FENCED(w) (pending[w].count == 0)

inline store(w, place, v, is_release) {
    d_step {
        pending[w].count < DEPTH ->
        pending[w].at[pending[w].count] = place;
        pending[w].value[pending[w].count] = v;
        pending[w].release[pending[w].count] = is_release;
        pending[w].count++
    }
}

inline load(w, place, result) {
    d_step {
        result = mem[place];
        i = 0;
        do
        :: i < pending[w].count ->
            if
            :: pending[w].at[i] == place -> result = pending[w].value[i]
            :: else
            fi;
            i++
        :: else -> break
        od;
        i = 0
    }
}

/* The j-th store of a buffer reaches memory. */
inline drain(w, j) {
    mem[pending[w].at[j]] = pending[w].value[j];
    i = j;
    do
    :: i + 1 < pending[w].count ->
        pending[w].at[i] = pending[w].at[i + 1];
        pending[w].value[i] = pending[w].value[i + 1];
        pending[w].release[i] = pending[w].release[i + 1];
        i++
    :: else -> break
    od;
    pending[w].at[i] = 0;
    pending[w].value[i] = 0;
    pending[w].release[i] = 0;
    pending[w].count--;
    i = 0
}

#define OLDEST(w) :: d_step { pending[w].count > 0 -> drain(w, 0) }
#ifdef WEAK
#define FREE_OF(w, j, k) (pending[w].at[j] != pending[w].at[k])
#define YOUNGER(w)                                                                                                     \
    :: d_step { pending[w].count > 1 && !pending[w].release[1] && FREE_OF(w, 1, 0) -> drain(w, 1) }                     \
    :: d_step { pending[w].count > 2 && !pending[w].release[2] && FREE_OF(w, 2, 0) && FREE_OF(w, 2, 1) -> drain(w, 2) } \
    :: d_step {                                                                                                        \
        pending[w].count > 3 && !pending[w].release[3] && FREE_OF(w, 3, 0) && FREE_OF(w, 3, 1) && FREE_OF(w, 3, 2) ->   \
        drain(w, 3)                                                                                                    \
    }
#else
#define YOUNGER(w)
#endif

active proctype memory() {
    byte i;
end:
    do
    OLDEST(0) YOUNGER(0)
    OLDEST(1) YOUNGER(1)
#if N > 2
    OLDEST(2) YOUNGER(2)
#endif
#if N > 3
    OLDEST(3) YOUNGER(3)
#endif
    od
}

/* ---- the kernel's futexes ---------------------------------------------------------------------------------------- */

byte asleep[N + 1]; /* place + 1 of the word that a worker, or the application, sleeps upon */
byte interrupts = INTERRUPTS;

#ifdef NO_SECOND_LOOK
#define STILL(place, old) true
#else
#define STILL(place, old) (mem[place] == old)
#endif

inline futex_wait(who, place, old) {
    if
    :: atomic { STILL(place, old) -> asleep[who] = place + 1 };
        if
        :: asleep[who] == 0
        :: atomic { interrupts > 0 && asleep[who] != 0 -> interrupts--; asleep[who] = 0 }
        fi
    :: !STILL(place, old)
    fi
}

inline futex_wake(place) {
    d_step {
        j = 0;
        do
        :: j <= N ->
            if
            :: asleep[j] == place + 1 -> asleep[j] = 0
            :: else
            fi;
            j++
        :: else -> break
        od;
        j = 0
    }
}

/* ---- the pool ---------------------------------------------------------------------------------------------------- */

byte sleepers[GROUPS];
byte job_sleepers;
bit stop;

/* What only the checks know. */
byte outside = N; /* workers that have not arrived at the barrier */
byte ran;         /* workers that have done the job */
byte ended;

#ifdef SLEEP_UNCOUNTED
#define COUNT(counter)
#define UNCOUNT(counter)
#else
#define COUNT(counter) atomic { FENCED(me) -> counter++ }
#define UNCOUNT(counter) atomic { FENCED(me) -> counter-- }
#endif

inline await_change(place, old, counter, may_spin) {
    load(me, place, now);
    if
    :: may_spin && now != old
    :: else ->
        COUNT(counter);
        do
        :: load(me, place, now);
            if
            :: now != old -> break
            :: else -> FENCED(me); futex_wait(me, place, old)
            fi
        od;
        UNCOUNT(counter)
    fi;
    now = 0
}

#ifdef RELAXED_ARRIVAL
#define ARRIVAL_ORDERED(place) (pending[me].count == 0 || pending[me].at[0] != place)
#else
#define ARRIVAL_ORDERED(place) FENCED(me)
#endif

/* Leaves 1 in `last` for the last of `members`, which sets the counter back. */
inline is_last(place, members) {
    atomic {
        ARRIVAL_ORDERED(place) ->
        mem[place]++;
        last = (mem[place] == members)
    };
#ifndef RESET_LATE
    if
    :: last -> store(me, place, 0, 0)
    :: else
    fi
#endif
}

#if defined(NO_FENCE)
#define STORE_FLAG(g) store(me, PHASE(g), phase + 1, 1)
#elif defined(RELAXED_FLAG)
#define STORE_FLAG(g) store(me, PHASE(g), phase + 1, 0)
#else
#define STORE_FLAG(g) atomic { FENCED(me) -> mem[PHASE(g)] = phase + 1 }
#endif

inline wake_sleepers() {
    g = 0;
    do
    :: g < GROUPS ->
        if
        :: sleepers[g] > 0 -> FENCED(me); futex_wake(PHASE(g))
        :: sleepers[g] == 0
        fi;
        g++
    :: else -> break
    od;
    g = 0
}

inline barrier() {
    load(me, PHASE(own), phase);
    is_last(ARRIVED(own), MEMBERS(own));
#if GROUPS > 1
    if
    :: last -> is_last(GROUPS_ARRIVED, GROUPS)
    :: else
    fi;
#endif
    if
    :: last ->
        assert(outside == 0); /* at_last, alone */
        outside = N;
        if
        :: store(me, AGREED, 2 * stamp, 0)
        :: round < ROUNDS -> store(me, AGREED, 2 * stamp + 1, 0)
        fi;
#ifdef WAKE_BEFORE_FLAG
        wake_sleepers();
#endif
        do
        :: g < GROUPS -> STORE_FLAG(g); g++
        :: else -> break
        od;
        g = 0;
#ifdef RESET_LATE
        store(me, ARRIVED(own), 0, 0);
#endif
#ifndef WAKE_BEFORE_FLAG
        wake_sleepers()
#endif
    :: else -> await_change(PHASE(own), phase, sleepers[own], true)
    fi;
    phase = 0;
    last = 0
}

proctype worker(byte me) {
    byte own = me / PER_GROUP;
    byte seen, now, phase, stamp, round, i, j, g;
    bit last;
    do
    :: atomic {
            FENCED(me) ->
            mem[RUNNING]--;
            last = (mem[RUNNING] == 0)
        };
#ifndef END_WITHOUT_WAKE
        if
        :: last -> futex_wake(RUNNING)
        :: else
        fi;
#endif
        last = 0;
        await_change(JOB, seen, job_sleepers, false);
        load(me, JOB, seen);
        if
        :: stop -> break
        :: else
        fi;
        round = 0;
        do
        :: round++;
            stamp++;
            store(me, DATA(stamp % 2, me), stamp, 0);
            outside--;
            barrier();
            load(me, DATA(stamp % 2, (me + 1) % N), now);
            assert(now == stamp);
            load(me, AGREED, now);
            assert(now / 2 == stamp);
            if
            :: now % 2 == 1
            :: else -> now = 0; break
            fi;
            now = 0
        od;
        ran++
    od;
    ended++
}

inline release() {
    mem[JOB]++;
    if
    :: job_sleepers > 0 -> futex_wake(JOB)
    :: job_sleepers == 0
    fi
}

inline wait() {
    do
    :: atomic { now = mem[RUNNING] };
        if
        :: now == 0 -> break
        :: else -> futex_wait(APPLICATION, RUNNING, now)
        fi
    od
}

init {
    byte made, now, job, j;
    mem[RUNNING] = N;
    atomic {
        do
        :: made < N -> run worker(made); made++
        :: made > 0 && made == N - 1 -> break /* the last thread cannot be made */
        :: made == N -> break
        od
    };
#ifndef MISSING_WORKERS_COUNTED
    if
    :: made < N -> atomic { mem[RUNNING] = mem[RUNNING] - (N - made) }
    :: else
    fi;
#endif
    wait();
    do
    :: job < JOBS && made == N ->
        ran = 0;
        job++;
#ifndef RUNNING_LATE
        mem[RUNNING] = N;
#endif
        release();
#ifdef RUNNING_LATE
        mem[RUNNING] = N;
#endif
        wait();
        assert(ran == N)
    :: else -> break
    od;
    wait();
#ifdef STOP_LATE
    release();
    stop = 1;
#else
    stop = 1;
    release();
#endif
    ended == made
}
