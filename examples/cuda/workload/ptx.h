/* kernels.ptx as a string in the program. */
#ifndef PTX_H
#define PTX_H

extern const char kernels_ptx[];
__asm__(".pushsection .rodata\n"
        "kernels_ptx: .incbin \"kernels.ptx\"\n"
        ".byte 0\n"
        ".popsection\n");

#endif
