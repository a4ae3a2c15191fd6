/* walk.c - the order in which the tiles of a matrix are read: stripe by stripe, column by column, in one or more lanes. */
#include "walk.h"

/* What one call of the kernel reads side by side: a part of the stripe that holds this unit (slot of 16 rows). */
typedef struct lane {
    uint32_t part;
    uint64_t unit;
    /* in the stripe: */
    const uint8_t *column;   /* this column of tiles on: the groups of all parts */
    uint32_t first;          /* group that the lane has reached */
    uint32_t groups;         /* that the part has */
    uint32_t before, of_all; /* groups of the parts before it, and of all parts */
} lane;

static lane lane_at(const cf_walk *walk, uint32_t part, uint64_t unit)
{
    const uint32_t stripe_groups = walk->tiles->tile_rows / CF_GROUP_ROWS;
    const uint64_t stripe = unit / stripe_groups;
    lane at = {.part = part,
               .unit = unit,
               .column = walk->weights + cf_tiles_stripe_offset(walk->tiles, stripe),
               .first = (uint32_t)(unit % stripe_groups)};
    for (uint32_t other = 0; other < walk->tiles->parts; other++) {
        const uint32_t groups = cf_tiles_groups(walk->tiles, other, stripe);
        at.before += other < part ? groups : 0;
        at.groups = other == part ? groups : at.groups;
        at.of_all += groups;
    }
    return at;
}

/* Groups 0 .. span - 1 from each lane's place on, of one column of tiles. */
static void walk_tiles(const cf_walk *walk, cf_gemv_call *call, const lane *lanes, uint32_t count, uint32_t span)
{
    const size_t group_bytes = cf_group_bytes(walk->tiles->type, call->blocks);
    /* Runs of groups over which the same lanes have rows: all of them, unless the parts differ in rows. */
    for (uint32_t group = 0; group < span;) {
        uint32_t stop = span;
        call->parts = 0;
        for (uint32_t i = 0; i < count; i++) {
            const lane *at = &lanes[i];
            if (at->first + group >= at->groups) {
                continue;
            }
            stop = at->groups - at->first < stop ? at->groups - at->first : stop;
            call->weights[call->parts] = at->column + (at->before + at->first + group) * group_bytes;
            call->y[call->parts] = walk->y[at->part] + (at->unit + group) * CF_GROUP_ROWS;
            call->parts++;
        }
        if (call->parts == 0) {
            return;
        }
        call->groups = stop - group;
        walk->kernel(call);
        for (uint32_t i = 0; walk->loaded != NULL && i < call->parts; i++) {
            walk->loaded(walk->context, call->weights[i], call->groups * group_bytes);
        }
        group = stop;
    }
}

/*
 * `span` units, at most a stripe, from each of `runs` places `apart` units from each other. One run: the parts go side
 * by side. More: the runs do, part after part, so that each run reads the file in its order.
 */
static void walk_span(const cf_walk *walk, uint32_t part_first, uint32_t part_last, uint64_t unit, uint32_t runs,
                      uint64_t apart, uint32_t span)
{
    const cf_tiles *tiles = walk->tiles;
    const uint32_t parts = part_last - part_first;
    const uint32_t calls = runs == 1 ? 1 : parts, lanes_of_call = runs == 1 ? parts : runs;
    lane lanes[CF_MAX_PARTS][CF_MAX_LANES];
    for (uint32_t c = 0; c < calls; c++) {
        for (uint32_t i = 0; i < lanes_of_call; i++) {
            lanes[c][i] =
                runs == 1 ? lane_at(walk, part_first + i, unit) : lane_at(walk, part_first + c, unit + i * apart);
        }
    }
    cf_gemv_call call = {.prefetch_hint = walk->prefetch_hint, .prefetch_bytes = walk->prefetch_bytes};
    for (uint64_t column = 0; column < tiles->columns; column += tiles->tile_cols) {
        const uint64_t left = tiles->columns - column;
        call.blocks = (uint32_t)((left < tiles->tile_cols ? left : tiles->tile_cols) / CF_BLOCK);
        call.x = cf_act_at(walk->x, (size_t)column);
        const size_t group_bytes = cf_group_bytes(tiles->type, call.blocks);
        for (uint32_t c = 0; c < calls; c++) {
            walk_tiles(walk, &call, lanes[c], lanes_of_call, span);
            for (uint32_t i = 0; i < lanes_of_call; i++) {
                lanes[c][i].column += lanes[c][i].of_all * group_bytes;
            }
        }
    }
}

void cf_walk_parts(const cf_walk *walk, uint32_t part_first, uint32_t part_last, uint64_t first, uint64_t last)
{
    const uint32_t stripe_groups = walk->tiles->tile_rows / CF_GROUP_ROWS;
    while (first < last) {
        uint64_t apart = (last - first) / walk->streams;
        const uint32_t runs = apart > 0 ? walk->streams : 1;
        apart = apart > 0 ? apart : last - first;
        /* Whole stripes, where there are enough: the runs then reach the ends of their tiles together. */
        apart -= apart > stripe_groups ? apart % stripe_groups : 0;
        for (uint64_t done = 0; done < apart;) {
            uint32_t span = apart - done < stripe_groups ? (uint32_t)(apart - done) : stripe_groups;
            for (uint32_t i = 0; i < runs; i++) {
                const uint32_t in_stripe = (uint32_t)((first + i * apart + done) % stripe_groups);
                span = stripe_groups - in_stripe < span ? stripe_groups - in_stripe : span;
            }
#ifdef CFLOW_MUTANT_WRONG_TILE_ORDER
            span = 1; /* 16 rows over all columns before the next 16: a slice of x is gone when it is needed again */
#endif
            walk_span(walk, part_first, part_last, first + done, runs, apart, span);
            done += span;
        }
        first += apart * runs;
    }
}
