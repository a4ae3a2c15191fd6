/* Commits the fault that its argument names, to prove that the sanitizers of this build are awake. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    /* volatile: the compiler must not see the fault, and remove it or give it to the other sanitizer. */
    if (argc == 2 && strcmp(argv[1], "overflow") == 0) {
        volatile size_t size = 16;
        volatile char *bytes = malloc(size);
        if (bytes == NULL) {
            return EXIT_FAILURE;
        }
        bytes[size] = 1;
        free((void *)bytes);
    } else if (argc == 2 && strcmp(argv[1], "undefined") == 0) {
        volatile int sum = INT_MAX;
        sum = sum + 1;
    } else {
        (void)fputs("usage: sanitizer_canary overflow|undefined\n", stderr);
        return EXIT_FAILURE;
    }
    (void)puts("the fault went unseen");
    return EXIT_SUCCESS;
}
