/*
 * ring.pml - weights read ahead through a ring of memory: engine/src/stream.c over the reader of reader.inc.
 *
 * What stands for what (functions of stream.c):
 *   room_for, skip_to_use, issue, await: the same
 *   stream_begin  cf_stream_begin   stream_fetch  cf_stream_fetch   stream_abandon  cf_stream_abandon
 * and of exec.c: call is at_start, run_token, cf_exec_at_phase_end and cf_exec_at_token_end, give_up. That the barrier
 * functions run alone is shown by barrier.pml, so one process is all workers here: it fetches, then uses.
 *
 * A token has phases 0 to 2 with uses of 1 or 2 units, sizes chosen at will: two in phase 0, none in phase 1, and in phase
 * 2 the head, which all tokens use or the last alone. The ring has the least size that make_ring() accepts, and SPARE
 * units. Two calls, so that what one leaves behind meets the next.
 *
 * Checked: what a phase uses has been read, by the read for this very use, and no read is under way into it when the
 * phase begins nor when it ends; ring and tickets suffice, whatever the sizes; every read that was issued is consumed, or
 * failed, or dropped, once; after a drain no read is under way; no deadlock; everything ends.
 *
 * Wrong on purpose, each found (tools/model): -DNO_WAIT -DRELEASED_EARLY -DMISSING_CANCEL -DNO_GAP -DWRAPS_INTO_OLDEST
 * -DRETURNS_AT_FIRST_FAILURE.
 */
#ifndef SPARE
#define SPARE 0
#endif
#ifndef TOKENS
#define TOKENS 2
#endif
#ifndef CALLS
#define CALLS 2
#endif
#define USES 3    /* of a token */
#define HEAD 2    /* the first use of the head */
#define LARGEST 2 /* units of a use */
#define UNITS (3 * LARGEST + SPARE)
#define READS 3 /* stream->capacity */

#include "reader.inc"

typedef entry {
    byte use, ticket, at, units;
    bit is_there;
}

entry entries[READS];
byte first, count, next_at, ring;
byte tokens, next, tag; /* what is to be issued next; a tag for each read */
bit every_head;
byte size[USES];
byte weights[USES]; /* where a use has been read to: stream->weights */
byte expected;      /* tag of the next use: they follow each other as the reads do */
#define PHASE_OF(use) ((use) < HEAD -> 0 : 2)
#define AT(i) ((first + (i)) % READS)
#define NO_ROOM 255

inline room_for(units) {
    if
    :: count == 0 -> next_at = 0; room = 0
    :: else ->
        if
        :: next_at <= entries[AT(0)].at ->
#ifdef WRAPS_INTO_OLDEST
            room = (entries[AT(0)].at - next_at + 1 >= units -> next_at : NO_ROOM)
#else
            room = (entries[AT(0)].at - next_at >= units -> next_at : NO_ROOM)
#endif
        :: else ->
            if
            :: ring - next_at >= units -> room = next_at
            :: else -> room = (entries[AT(0)].at >= units -> 0 : NO_ROOM)
            fi
        fi
    fi
}

inline skip_to_use() {
    do
    :: tokens > 0 && next >= (every_head || tokens == 1 -> USES : HEAD) -> tokens--; next = 0
    :: else -> break
    od
}

inline issue() {
    do
    :: atomic {
            skip_to_use();
            if
            :: tokens == 0 || count == READS -> break
            :: else
            fi;
            room_for(size[next]);
            if
            :: room == NO_ROOM -> break
            :: else
            fi;
            reader_issue(room, size[next], tag);
            entries[AT(count)].use = next;
            entries[AT(count)].ticket = got;
            entries[AT(count)].at = room;
            entries[AT(count)].units = size[next];
            entries[AT(count)].is_there = 0;
            next_at = room + size[next];
            count++;
            next++;
            tag++;
            got = 0;
            room = 0
        }
    od
}

inline await(e) {
#ifdef NO_WAIT
    status = OK;
    consumed++;
    tickets[entries[e].ticket].state = FREE;
#else
    reader_wait(entries[e].ticket);
#endif
    if
    :: status == OK -> entries[e].is_there = 1; weights[entries[e].use] = entries[e].at
    :: else
    fi
}

inline stream_begin() {
    d_step {
        count = 0;
        tokens = of_call;
        next = 0;
        expected = tag
    }
}

#ifdef RELEASED_EARLY
#define IS_RELEASED(e) true
#else
#define IS_RELEASED(e) entries[e].is_there
#endif

inline stream_fetch() {
    d_step {
        status = OK;
        do
        :: count > 0 && IS_RELEASED(AT(0)) ->
            entries[AT(0)].is_there = 0;
            first = AT(1);
            count--
        :: else -> break
        od
    };
    issue();
    do
    :: atomic {
            room = 0;
            if
            :: i == count || status != OK || PHASE_OF(entries[AT(i)].use) != phase ||
                   (i > 0 && entries[AT(i)].use <= last) ->
                break /* no more, or of a later phase, or a later token */
            :: else
            fi;
            last = entries[AT(i)].use
        };
        await(AT(i));
        i++
    od;
    i = 0;
    last = 0
}

inline stream_abandon() {
#ifndef MISSING_CANCEL
    reader_drain();
#endif
    count = 0;
    tokens = 0
}

/* The weights of the phase, from the expected one on. */
inline check_weights() {
    d_step {
        wanted = expected;
        i = 0;
        do
        :: i < USES ->
            if
            :: PHASE_OF(i) == phase -> check_use(weights[i], size[i], wanted); wanted++
            :: else
            fi;
            i++
        :: else -> break
        od;
        i = 0
    }
}

inline give_up() {
    stream_abandon();
    going = 0
}

inline fetch_streamed() {
    stream_fetch();
    if
    :: status != OK -> give_up()
    :: else
    fi;
    if
    :: cancel -> give_up()
    :: else
    fi
}

#define LAST_PHASE (every_head || token + 1 == of_call -> 2 : 1)

inline call() {
    select (of_call : 1 .. TOKENS);
    if
    :: every_head = 0
    :: every_head = 1
    fi;
    going = 1;
    token = 0;
    phase = 0;
    stream_begin();
    fetch_streamed();
    do
    :: going ->
        check_weights();
        check_weights(); /* meanwhile the device works */
        d_step {
            expected = wanted;
            wanted = 0;
            if
            :: phase < LAST_PHASE -> phase++; turn()
            :: else -> phase = 0; token++
            fi
        };
        if
        :: token == of_call -> going = 0
        :: else -> fetch_streamed()
        fi
    :: else -> break
    od;
    assert(issued == consumed + gone_wrong + dropped); /* all reads of a call are over when it ends */
    cancel = 0
}

#define MAX(a, b) ((a) > (b) -> (a) : (b))

init {
    byte t, q, u, p, i, wanted, got, room, last, phase, token, of_call, calls;
    bit going;
    select (i : 1 .. LARGEST);
    size[0] = i;
    select (i : 1 .. LARGEST);
    size[1] = i;
    select (i : 1 .. LARGEST);
    size[2] = i;
    d_step {
        i = MAX(MAX(size[0], size[1]), size[2]);
        ring = size[0] + size[1] + i + SPARE; /* as least_bytes() */
#ifdef NO_GAP
        ring = ring - i;
#endif
        i = 0
    };
    do
    :: calls < CALLS -> call(); calls++
    :: else -> break
    od;
    reader_drain(); /* cf_stream_destroy() */
    check_all_over()
}
