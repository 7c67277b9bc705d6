// Package isatest checks that assembly keeps to its level. It decodes the machine code of a package's
// assembly functions, as the assembler and the linker have written it, and compares each instruction
// with the features that the level promises which the function's name ends in. It owns the list of the
// features that each instruction needs, and runs none of the code. Tests call it, from one goroutine.
//
//	func TestMachineCode(t *testing.T) {
//		isatest.Check(t, "github.com/coppice-llm/coppice/engine/cpu")
//	}
//
// It needs objdump of GNU binutils; without it, Check skips the test.
package isatest
