/*
 * staging.pml - experts that are read when they are chosen and used DELAY layers later: engine/src/experts.c over the
 * reader of reader.inc, with workers that use some experts while thread 0 starts the reads of others.
 *
 * What stands for what (functions of experts.c):
 *   layers_at_once, free_slot, use, await, forget: the same
 *   experts_choose  cf_experts_choose, issue   experts_fetch  cf_experts_fetch, fetch_row
 *   experts_begin   cf_experts_begin           experts_abandon  cf_experts_abandon
 * and of exec.c: lead is thread 0 in run_token, and whatever runs in a barrier: fetch_experts, cf_exec_at_phase_end,
 * cf_exec_at_token_end, give_up; user is the other workers. The barrier is two rendezvous: barrier.pml shows that pool.c
 * makes one of memory and futexes.
 *
 * LAYERS layers choose an expert of EXPERTS each, at will, in phase 2 * layer + OFFSET; its gate and up stand in phase
 * 2 * (layer + DELAY + OFFSET), its down in the next, and no layer's later than the last two. OFFSET 0: experts of a phase
 * are fetched behind the choices of that phase; 1: choices are made beside the use of other experts. Slots: as few as
 * make_slots() allows; with -DKEEP and SPARE more, which keep what was read.
 *
 * Left out: more than one expert of a layer, reads that begin when they are waited for (option expert_reads),
 * cf_experts_read(), hashes that do not match, and streamed weights on the same reader.
 *
 * Checked: an expert in use has been read, is the one that was chosen, and no read is under way into its slot, at the
 * beginning of a use and at its end; there is always a slot and a ticket; every read is consumed, or failed, or dropped,
 * once; after a drain no read is under way; what is kept is whole; no deadlock; everything ends.
 *
 * Wrong on purpose, each found (tools/model): -DNO_WAIT -DRELEASED_EARLY -DMISSING_CANCEL -DRETURNS_AT_FIRST_FAILURE
 * -DFENCE_STAYS_SHUT, with -DKEEP also -DREAD_NOT_FORGOTTEN -DFAILURE_KEPT -DHIT_UNMARKED.
 */
#ifndef DELAY
#define DELAY 1
#endif
#ifndef OFFSET
#define OFFSET 1
#endif
#ifndef LAYERS
#define LAYERS 3
#endif
#ifndef EXPERTS
#define EXPERTS 2
#endif
#ifndef BLOCKS
#define BLOCKS LAYERS /* fewer: layers share experts */
#endif
#ifndef SPARE
#define SPARE 0
#endif
#ifndef TOKENS
#define TOKENS 1 /* of a call */
#endif
#ifndef CALLS
#define CALLS 2
#endif
#define PHASES (2 * (LAYERS + OFFSET))
#define CHOICE(l) (2 * (l) + OFFSET)
#define LATE(l) (2 * ((l) + DELAY + OFFSET))
#define GATE_UP(l) (LATE(l) < PHASES - 2 -> LATE(l) : PHASES - 2)
#define DOWN(l) (GATE_UP(l) + 1)
#define SLOTS (LAYERS + SPARE) /* at most */
#define SLOT_UNITS 2
#define UNITS (SLOTS * SLOT_UNITS)
#define READS LAYERS
#define NONE 255

#include "reader.inc"

typedef a_slot {
    byte blob; /* GARBAGE: nothing; else layer's block * EXPERTS + expert + 1, which is what the file holds there */
    bit reading;
    byte ticket, busy_until;
}

a_slot slots[SLOTS];
byte recent[SLOTS]; /* slots, the one that was used last first */
byte slot_count;
byte row[LAYERS], wanted[LAYERS];
byte first_step = 1;
byte failed;
chan meet = [0] of { bit };

/* ---- slots ------------------------------------------------------------------------------------------------------- */

#ifdef RELEASED_EARLY
#define IS_OVER_BEFORE(step, last) (last <= step)
#else
#define IS_OVER_BEFORE(step, last) (last < step)
#endif

inline layers_at_once() {
    slot_count = 2;
    l = 0;
    do
    :: l < LAYERS ->
        got = 0;
        q = 0;
        do
        :: q < LAYERS ->
            if
            :: CHOICE(q) <= CHOICE(l) && !IS_OVER_BEFORE(CHOICE(l), DOWN(q)) -> got++
            :: else
            fi;
            q++
        :: else -> break
        od;
        slot_count = (got > slot_count -> got : slot_count);
        l++
    :: else -> break
    od;
    slot_count = slot_count + SPARE;
    q = 0;
    do
    :: q < slot_count -> recent[q] = q; q++
    :: else -> break
    od;
    l = 0;
    q = 0;
    got = 0
}

/* From the one that was not used for longest on. Leaves it in `s`. */
inline free_slot() {
    i = slot_count;
    do
    :: assert(i > 0);
        i--;
        if
        :: IS_OVER_BEFORE(step, slots[recent[i]].busy_until) -> s = recent[i]; break
        :: else
        fi
    od
}

inline forget(at) {
    slots[at].blob = GARBAGE;
    slots[at].reading = 0
}

/* The slot `s` is in use up to `last_step`, and the one that was used last. */
inline mark() {
    slots[s].busy_until = (last_step > slots[s].busy_until -> last_step : slots[s].busy_until);
    i = 0;
    do
    :: recent[i] == s -> break
    :: else -> i++
    od;
    do
    :: i > 0 -> recent[i] = recent[i - 1]; i--
    :: else -> break
    od;
    recent[0] = s
}

/* One use of the expert `blob`, from `step` to `last_step`. Leaves its slot in `s`. */
inline use() {
    s = NONE;
#ifdef KEEP
    i = 0;
    do
    :: i < slot_count ->
        if
        :: slots[i].blob == blob -> s = i
        :: else
        fi;
        i++
    :: else -> break
    od;
#endif
    if
    :: s == NONE ->
        free_slot();
        forget(s);
        reader_issue(s * SLOT_UNITS, SLOT_UNITS, blob);
        slots[s].blob = blob;
        slots[s].reading = 1;
        slots[s].ticket = got
    :: else -> is_hit = 1
    fi;
#ifdef HIT_UNMARKED
    if
    :: is_hit -> skip
    :: else -> mark()
    fi;
#else
    mark();
#endif
    is_hit = 0;
    got = 0
}

/* Thread 0, when the router has decided. */
inline experts_choose(layer) {
    select (expert : 0 .. EXPERTS - 1);
    atomic {
        wanted[layer] = ((layer) % BLOCKS) * EXPERTS + expert + 1;
        expert = 0;
        reader_fence();
        blob = wanted[layer];
        step = first_step + CHOICE(layer);
        last_step = first_step + DOWN(layer);
        use();
        row[layer] = s;
        s = 0;
        blob = 0;
        step = 0;
        last_step = 0
    }
}

inline await(at) {
#ifdef NO_WAIT
    status = OK;
#else
    status = OK;
    if
    :: slots[at].reading ->
        reader_wait(slots[at].ticket);
        if
        :: status != CANCELLED ->
            slots[at].reading = 0;
#ifndef FAILURE_KEPT
            if
            :: status != OK -> forget(at)
            :: else
            fi
#endif
        :: else
        fi
    :: else
    fi
#endif
}

/* In a barrier, in front of the experts of a phase. */
inline experts_fetch() {
    l = 0;
    do
    :: l < LAYERS && GATE_UP(l) == phase && failed == OK -> await(row[l]); failed = status; l++
    :: l < LAYERS && (GATE_UP(l) != phase || failed != OK) -> l++
    :: l == LAYERS -> break
    od;
    l = 0
}

inline experts_abandon() {
#ifndef MISSING_CANCEL
    reader_drain();
#endif
    d_step {
        s = 0;
        do
        :: s < slot_count ->
#ifndef READ_NOT_FORGOTTEN
            if
            :: slots[s].reading -> forget(s)
            :: else
            fi;
#endif
            slots[s].reading = 0;
            s++
        :: else -> break
        od;
        s = 0
    }
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

inline experts_begin() {
    d_step {
        first_step = first_step + PHASES;
        failed = OK
    }
}

#define STOPS (failed != OK || gave_up)

inline give_up() {
    experts_abandon();
    gave_up = 1
}

inline choices() {
    m = 0;
    do
    :: m < LAYERS && CHOICE(m) == phase -> experts_choose(m); m++
    :: m < LAYERS && CHOICE(m) != phase -> m++
    :: m == LAYERS -> break
    od;
    m = 0
}

/* Phases whose experts somebody has to wait for. */
#define FETCHES(phase) ((phase) % 2 == 0 && (phase) >= GATE_UP(0))

proctype lead() {
    byte t, q, i, l, m, s, got, phase, token, calls;
    byte expert, blob, step, last_step; /* of experts_choose() */
    bit gave_up, is_hit;
    do
    :: calls < CALLS ->
        token = 0;
        gave_up = 0;
        do
        :: token < TOKENS && !gave_up ->
            experts_begin();
            phase = 0;
            do
            :: phase < PHASES && !gave_up ->
                choices();
                if
                :: FETCHES(phase) ->
                    meet ? _;
                    experts_fetch();
                    if
                    :: failed != OK -> give_up()
                    :: else
                    fi;
                    meet ! gave_up
                :: else
                fi;
                if
                :: gave_up -> break
                :: else
                fi;
                meet ? _;
                d_step { turn() };
                phase++;
                if
                :: cancel -> give_up()
                :: else
                fi;
                meet ! gave_up
            :: else -> break
            od;
            phase = 0;
            token++
        :: else -> break
        od;
        assert(issued == consumed + gone_wrong + dropped);
        cancel = 0;
        calls++
    :: else -> break
    od;
    reader_drain(); /* cf_experts_destroy() */
    check_all_over()
}

/* The experts of the phase, in use. */
inline check_experts() {
    d_step {
        l = 0;
        do
        :: l < LAYERS ->
            if
            :: GATE_UP(l) == phase || DOWN(l) == phase ->
                assert(slots[row[l]].blob == wanted[l]);
                check_use(row[l] * SLOT_UNITS, SLOT_UNITS, wanted[l])
            :: else
            fi;
            l++
        :: else -> break
        od;
        l = 0
    }
}

proctype user() {
    byte u, p, l, phase, token, calls;
    bit leave;
    do
    :: calls < CALLS ->
        token = 0;
        leave = 0;
        do
        :: token < TOKENS && !leave ->
            phase = 0;
            do
            :: phase < PHASES && !leave ->
                if
                :: FETCHES(phase) -> meet ! 0; meet ? leave
                :: else
                fi;
                if
                :: leave -> break
                :: else
                fi;
                check_experts();
                check_experts(); /* meanwhile thread 0 and the device work */
                meet ! 0;
                meet ? leave;
                phase++
            :: else -> break
            od;
            phase = 0;
            token++
        :: else -> break
        od;
        calls++
    :: else -> break
    od
}

init {
    byte l, q, got;
    d_step { layers_at_once() };
    atomic {
        run lead();
        run user()
    }
}
