// Opens a library, calls a function of it if one is named, and ends at once; or executes a program after some microseconds:
// opens LIBRARY [FUNCTION]
// opens LIBRARY - MICROSECONDS PROGRAM [ARGUMENT...]
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

int main(int count, char **words) {
    void *library = dlopen(words[1], RTLD_NOW);
    if (count > 4) {
        usleep(atoi(words[3]));
        execv(words[4], words + 4);
        _exit(2);
    }
    long (*function)(long) = library && count > 2 ? (long (*)(long))dlsym(library, words[2]) : NULL;
    if (function) function(1);
    _exit(!library || (count > 2 && !function));
}
