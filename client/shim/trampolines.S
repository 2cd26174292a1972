/* The entries that are forwarded: each jumps through its slot to the real driver's function, with all registers and the
   stack as the caller left them. A slot leads to `first_call` at first, which has it filled (slots.cc) and goes on.

   first_call saves what a call's arguments may be in. Of the vector registers that is the part which holds a float or a
   double: no call of the driver takes a vector. */

#if defined(__x86_64__)

	.macro	forward index, name
	.text
	.globl	\name
	.type	\name, %function
	.balign	16
\name:
	.cfi_startproc
	endbr64
	jmp	*.Lslot_\name(%rip)
	.cfi_endproc
	.size	\name, . - \name
	.section .text.unlikely, "ax", %progbits
.Lfirst_\name:
	.cfi_startproc
	endbr64
	movl	$\index, %r11d
	jmp	first_call
	.cfi_endproc
	.data
.Lslot_\name:
	.quad	.Lfirst_\name
	.endm

	.section .text.unlikely, "ax", %progbits
	.type	first_call, %function
first_call:
	.cfi_startproc
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	movq	%rsp, %rbp
	.cfi_def_cfa_register %rbp
	subq	$192, %rsp
	movq	%rdi, (%rsp)
	movq	%rsi, 8(%rsp)
	movq	%rdx, 16(%rsp)
	movq	%rcx, 24(%rsp)
	movq	%r8, 32(%rsp)
	movq	%r9, 40(%rsp)
	movq	%rax, 48(%rsp)
	movq	%r10, 56(%rsp)
	movaps	%xmm0, 64(%rsp)
	movaps	%xmm1, 80(%rsp)
	movaps	%xmm2, 96(%rsp)
	movaps	%xmm3, 112(%rsp)
	movaps	%xmm4, 128(%rsp)
	movaps	%xmm5, 144(%rsp)
	movaps	%xmm6, 160(%rsp)
	movaps	%xmm7, 176(%rsp)
	movl	%r11d, %edi
	call	gpumem_shim_resolve
	movq	%rax, %r11
	movq	(%rsp), %rdi
	movq	8(%rsp), %rsi
	movq	16(%rsp), %rdx
	movq	24(%rsp), %rcx
	movq	32(%rsp), %r8
	movq	40(%rsp), %r9
	movq	48(%rsp), %rax
	movq	56(%rsp), %r10
	movaps	64(%rsp), %xmm0
	movaps	80(%rsp), %xmm1
	movaps	96(%rsp), %xmm2
	movaps	112(%rsp), %xmm3
	movaps	128(%rsp), %xmm4
	movaps	144(%rsp), %xmm5
	movaps	160(%rsp), %xmm6
	movaps	176(%rsp), %xmm7
	leave
	.cfi_def_cfa %rsp, 8
	jmp	*%r11
	.cfi_endproc
	.size	first_call, . - first_call

#elif defined(__aarch64__)

	/* hint 34 is `bti c`. The slot is read with acquire order, so that what the loader wrote into the driver's library
	   before the slot was filled is seen by this thread, too. */
	.macro	forward index, name
	.text
	.globl	\name
	.type	\name, %function
	.balign	16
\name:
	.cfi_startproc
	hint	#34
	adrp	x16, .Lslot_\name
	add	x16, x16, :lo12:.Lslot_\name
	ldar	x16, [x16]
	br	x16
	.cfi_endproc
	.size	\name, . - \name
	.section .text.unlikely, "ax", %progbits
.Lfirst_\name:
	.cfi_startproc
	hint	#34
	mov	w17, #\index
	b	first_call
	.cfi_endproc
	.data
.Lslot_\name:
	.quad	.Lfirst_\name
	.endm

	.section .text.unlikely, "ax", %progbits
	.type	first_call, %function
first_call:
	.cfi_startproc
	stp	x29, x30, [sp, #-224]!
	.cfi_def_cfa_offset 224
	.cfi_offset x29, -224
	.cfi_offset x30, -216
	mov	x29, sp
	stp	x0, x1, [sp, #16]
	stp	x2, x3, [sp, #32]
	stp	x4, x5, [sp, #48]
	stp	x6, x7, [sp, #64]
	str	x8, [sp, #80]
	stp	q0, q1, [sp, #96]
	stp	q2, q3, [sp, #128]
	stp	q4, q5, [sp, #160]
	stp	q6, q7, [sp, #192]
	mov	w0, w17
	bl	gpumem_shim_resolve
	mov	x16, x0
	ldp	x0, x1, [sp, #16]
	ldp	x2, x3, [sp, #32]
	ldp	x4, x5, [sp, #48]
	ldp	x6, x7, [sp, #64]
	ldr	x8, [sp, #80]
	ldp	q0, q1, [sp, #96]
	ldp	q2, q3, [sp, #128]
	ldp	q4, q5, [sp, #160]
	ldp	q6, q7, [sp, #192]
	ldp	x29, x30, [sp], #224
	.cfi_def_cfa sp, 0
	.cfi_restore x29
	.cfi_restore x30
	br	x16
	.cfi_endproc
	.size	first_call, . - first_call

#else
#error the trampolines are written for x86-64 and aarch64
#endif

	.data
	.balign	8
	.globl	gpumem_shim_slots
	.hidden	gpumem_shim_slots
	.type	gpumem_shim_slots, %object
gpumem_shim_slots:

#define GPUMEM_SHIM_FORWARD(index, name) forward index, name
#include "forwarded.inc"

	.data
	.size	gpumem_shim_slots, . - gpumem_shim_slots
	.section .note.GNU-stack, "", %progbits
