# One function for each way in which a function may begin. All return their first argument.
#
# What a probe costs depends on the instruction it sits on: the kernel emulates a `push` and jumps over nops, and runs
# most others out of line in a single step.

.macro function name
    .globl \name
    .type \name, @function
    .p2align 4
\name:
    .cfi_startproc
.endm

.macro end name
    .cfi_endproc
    .size \name, . - \name
.endm

    .text

function hammer_push
    push %rbp
    .cfi_def_cfa_offset 16
    mov %rsp, %rbp
    mov %rdi, %rax
    pop %rbp
    .cfi_def_cfa_offset 8
    ret
end hammer_push

function hammer_nop5
    .byte 0x0f, 0x1f, 0x44, 0x00, 0x00
    mov %rdi, %rax
    ret
end hammer_nop5

# As a compiler with -fcf-protection writes it: a probe is better placed on the push.
function hammer_endbr64
    endbr64
    push %rbp
    .cfi_def_cfa_offset 16
    mov %rsp, %rbp
    mov %rdi, %rax
    pop %rbp
    .cfi_def_cfa_offset 8
    ret
end hammer_endbr64

function hammer_sub
    sub $24, %rsp
    .cfi_def_cfa_offset 32
    mov %rdi, %rax
    add $24, %rsp
    .cfi_def_cfa_offset 8
    ret
end hammer_sub

function hammer_mov
    mov %rdi, %rax
    ret
end hammer_mov

    .section .note.GNU-stack, "", @progbits
