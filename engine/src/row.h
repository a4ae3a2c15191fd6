/* row.h - single rows out of tiles. */
#ifndef CF_ROW_H
#define CF_ROW_H

#include "kernels.h"

/* out[columns] = row `row` of a one-part matrix, dequantised. data: its tiles. */
void cf_tiles_read_row(const cf_tiles *tiles, const uint8_t *data, uint64_t row, float *out);

#endif
