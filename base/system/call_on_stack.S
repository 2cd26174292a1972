/* void gpumem_call_on_stack(void* top, void (*work)(void*), void* argument): calls work(argument) on the stack that ends
   below `top`, a multiple of 16. swapcontext(3) would make system calls. The unwinder finds the caller by the frame
   pointer, so an exception passes. */

	.text
	.globl	gpumem_call_on_stack
	.hidden	gpumem_call_on_stack
	.type	gpumem_call_on_stack, %function
gpumem_call_on_stack:
	.cfi_startproc

#if defined(__x86_64__)

	endbr64
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	movq	%rsp, %rbp
	.cfi_def_cfa_register %rbp
	movq	%rdi, %rsp
	movq	%rdx, %rdi
	call	*%rsi
	movq	%rbp, %rsp
	popq	%rbp
	.cfi_def_cfa %rsp, 8

#elif defined(__aarch64__)

	stp	x29, x30, [sp, #-16]!
	.cfi_def_cfa_offset 16
	.cfi_offset x29, -16
	.cfi_offset x30, -8
	mov	x29, sp
	.cfi_def_cfa_register x29
	mov	sp, x0
	mov	x0, x2
	blr	x1
	mov	sp, x29
	ldp	x29, x30, [sp], #16
	.cfi_def_cfa sp, 0

#else
#error the change of stacks is written for x86-64 and aarch64
#endif

	ret
	.cfi_endproc
	.size	gpumem_call_on_stack, . - gpumem_call_on_stack

	.section .note.GNU-stack, "", %progbits
