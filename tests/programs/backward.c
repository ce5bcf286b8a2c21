/* A library whose function works in a thread of its own, as PyTorch's backward pass does. */
#include <pthread.h>
#include <stddef.h>
#include <unistd.h>

static void *work(void *calls)
{
    for (long i = 0; i < (long)calls; i++) getppid();
    return NULL;
}

void run_in_thread(long calls)
{
    pthread_t thread;
    pthread_create(&thread, NULL, work, (void *)calls);
    pthread_join(thread, NULL);
}
