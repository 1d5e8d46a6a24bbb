#include "textflag.h"

// func lines(p unsafe.Pointer, n uintptr)
TEXT ·lines(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ n+8(FP), BX
	ADDQ AX, BX
	ANDQ $~63, AX
line:
	PREFETCHT0 (AX)
	ADDQ $64, AX
	CMPQ AX, BX
	JCS  line
	RET

// func heads(p unsafe.Pointer, n, stride uintptr)
TEXT ·heads(SB), NOSPLIT, $0-24
	MOVQ p+0(FP), AX
	MOVQ n+8(FP), BX
	MOVQ stride+16(FP), CX
head:
	PREFETCHT0 (AX)
	ADDQ CX, AX
	DECQ BX
	JNZ  head
	RET
