/*
 * Steps of a training with the simulated PyTorch: workload_torch [STEPS [LAYERS [THREADS [MS]]]]. Each thread trains a network of its own; its
 * backward passes take turns. After each step it sleeps so many milliseconds, and at the end it prints whether anybody still observes.
 *
 *     planted aten::mm 240
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "torch.h"

static int steps = 10, layers = 12, threads = 1, pause_ms;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static void *train(void *unused) {
    (void)unused;
    for (int step = 0; step < steps; step++) {
        pthread_mutex_lock(&turn);
        for (int layer = 0; layer < layers; layer++) torch_layer();
        torch_backward();
        pthread_mutex_unlock(&turn);
        torch_step();
        usleep((useconds_t)pause_ms * 1000);
    }
    return NULL;
}

int main(int argc, char **argv) {
    int *const numbers[] = {&steps, &layers, &threads, &pause_ms};
    pthread_t running[64];
    for (int i = 1; i < argc && i <= 4; i++) *numbers[i - 1] = atoi(argv[i]);
    if (threads < 1 || threads > 64) return 2;
    torch_open();
    printf("== counts ==\npid %d\n", (int)getpid());
    for (int i = 0; i < threads; i++) pthread_create(&running[i], NULL, train, NULL);
    for (int i = 0; i < threads; i++) pthread_join(running[i], NULL);
    torch_deep(100);
    torch_close();
    long of_layers = (long)steps * layers * threads;
    printf("planted aten::addmm %ld\nplanted aten::clamp_min %ld\nplanted aten::mm %ld\n", of_layers, of_layers, 2 * of_layers);
    printf("planted aten::threshold_backward %ld\nplanted aten::add_ %ld\n", of_layers, of_layers);
    printf("planted aten::_foreach_add_ %ld\nplanted aten::deep 1\nobservers %d\n== end ==\n", (long)steps * threads, torch_observers());
    return 0;
}
