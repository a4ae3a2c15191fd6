/* Two threads write one word, to prove that the sanitizer of this build sees a data race. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static int word;

static void *write_it(void *argument)
{
    word = 1;
    return argument;
}

int main(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, write_it, NULL) != 0) {
        return EXIT_FAILURE;
    }
    word = 2;
    if (pthread_join(thread, NULL) != 0) {
        return EXIT_FAILURE;
    }
    (void)printf("the race went unseen: %d\n", word);
    return EXIT_SUCCESS;
}
