/* utf8.h - text that came from a file. */
#ifndef CF_UTF8_H
#define CF_UTF8_H

#include <stdint.h>

/*
 * Offset of the first byte that is no part of well-formed UTF-8 (Unicode 15, table 3-7: shortest forms, no surrogates,
 * nothing above U+10FFFF); `bytes` when all are.
 */
uint64_t cf_utf8_valid(const uint8_t *text, uint64_t bytes);

#endif
