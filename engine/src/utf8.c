#include "utf8.h"

/* Bytes that follow a first byte, and the range of the first of them; 0 bytes and an empty range: no first byte. */
typedef struct form {
    uint32_t more;
    uint8_t low, high;
} form;

static form form_of(uint8_t first)
{
    const uint32_t more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
    switch (first) {
    case 0xe0:
        return (form){more, 0xa0, 0xbf};
    case 0xed:
        return (form){more, 0x80, 0x9f};
    case 0xf0:
        return (form){more, 0x90, 0xbf};
    case 0xf4:
        return (form){more, 0x80, 0x8f};
    default:
        return first < 0xc2 || first > 0xf4 ? (form){0, 1, 0} : (form){more, 0x80, 0xbf};
    }
}

uint64_t cf_utf8_valid(const uint8_t *text, uint64_t bytes)
{
    uint64_t at = 0;
    while (at < bytes) {
        if (text[at] < 0x80) {
            at++;
            continue;
        }
        const form own = form_of(text[at]);
        if (own.more == 0 || own.more > bytes - at - 1 || text[at + 1] < own.low || text[at + 1] > own.high) {
            return at;
        }
        for (uint32_t i = 2; i <= own.more; i++) {
            if ((text[at + i] & 0xc0u) != 0x80) {
                return at;
            }
        }
        at += 1 + own.more;
    }
    return bytes;
}
