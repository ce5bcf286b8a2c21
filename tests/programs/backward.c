/* A library whose function works in a thread of its own, as PyTorch's backward pass does. */
#include <pthread.h>
#include <stddef.h>
#include <time.h>

static void *work(void *calls)
{
    for (long i = 0; i < (long)calls; i++) {
        struct tm noon = {.tm_year = 100, .tm_mday = 1, .tm_hour = 12};
        mktime(&noon);
    }
    return NULL;
}

void run_in_thread(long calls)
{
    pthread_t thread;
    pthread_create(&thread, NULL, work, (void *)calls);
    pthread_join(thread, NULL);
}
