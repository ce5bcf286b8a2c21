# Writes the exported entry points (-v out=asm) or the list of exports for table.c (-v out=list).
#
# Input, in this order: the names that have an implementation (SIM(...) in the sources), aliases.txt, functions.txt. A symbol
# is served by the implementation of its own name, else by that of its alias, both also without `_ptsz` or `_ptds`, else it
# answers CUDA_ERROR_NOT_SUPPORTED. Each symbol has an address of its own and begins with `push %rbp`, as the real ones do:
# what a probe costs depends on the first instruction.

function implementation(name) {
    if (name in done) return name
    if (name in alias) return alias[name]
    return ""
}

function begin(name) {
    printf ".globl %s\n.type %s,@function\n.p2align 4\n%s:\n\t.cfi_startproc\n\tpush %%rbp\n", name, name, name
    print "\t.cfi_def_cfa_offset 16\n\t.cfi_offset 6,-16\n\tmov %rsp,%rbp"
}

# The arguments are where they were, registers and stack alike, so that a jump hands them on whatever they are.
function forward(name, to) {
    begin(name)
    printf "\tpop %%rbp\n\t.cfi_def_cfa_offset 8\n\tjmp sim_%s\n\t.cfi_endproc\n.size %s,.-%s\n\n", to, name, name
}

function refuse(name) {
    begin(name)
    print "\tmov $801,%eax"  # CUDA_ERROR_NOT_SUPPORTED
    printf "\tpop %%rbp\n\t.cfi_def_cfa_offset 8\n\tret\n\t.cfi_endproc\n.size %s,.-%s\n\n", name, name
}

BEGIN { if (out == "asm") print "\t.text\n" }
/^#/ || NF == 0 { next }
FILENAME ~ /aliases.txt$/ { alias[$1] = $2; next }
FILENAME !~ /functions.txt$/ { done[$1] = 1; next }
out == "list" { printf "EXPORT(%s)\n", $1; next }
{
    plain = $1
    sub(/_pt[sd][sz]$/, "", plain)
    to = implementation($1)
    if (to == "") to = implementation(plain)
    if (to == "") refuse($1); else forward($1, to)
}
END { if (out == "asm") print "\t.section .note.GNU-stack,\"\",@progbits" }
