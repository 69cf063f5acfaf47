/* Set the stack and clear .bss; there is no .data. */
    .section .text.start
    .global _start
_start:
    la sp, stack_end
    la a0, bss_begin
    la a1, bss_end
1:  bgeu a0, a1, 2f
    sw zero, 0(a0)
    addi a0, a0, 4
    j 1b
2:  call main
3:  j 3b
