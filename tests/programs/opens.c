// Opens a library, calls a function of it without arguments if one is named, and ends at once.
#include <dlfcn.h>
#include <unistd.h>

int main(int count, char **words) {
    void *library = dlopen(words[1], RTLD_NOW);
    long (*function)(long) = library && count > 2 ? (long (*)(long))dlsym(library, words[2]) : NULL;
    if (function) function(1);
    _exit(!library || (count > 2 && !function));
}
