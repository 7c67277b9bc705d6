package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Of SmolLM2-135M: blocks of four k by 64 columns in the products of a token, those of 30 layers (query, key
// and value; output; gate and up; down) and those of the head.
const blocks = 30*((15+9+48)*576/quad+9*1536/quad) + 768*576/quad

// TestCountsOfTheDocument compares the table of docs/arm64.md with the loops of the assembly.
func TestCountsOfTheDocument(t *testing.T) {
	document, err := os.ReadFile("../../docs/arm64.md")
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]loop{}
	for _, path := range []string{"kernel_neon_arm64.s", "kernel_avx2_amd64.s"} {
		all, err := loops("../../engine/cpu/" + path)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range all {
			of[l.function+" "+l.label] = l
		}
	}
	for _, kind := range []string{"f32", "bf16", "f16"} {
		for _, work := range []struct{ shape, name string }{{"1x64", "decode, one row"}, {"6x16", "prompt, six rows at a time"}} {
			neon, avx2 := of["gemm"+work.shape+kind+"NEON quads"], of["gemm"+work.shape+kind+"AVX2 step"]
			if neon.multiplies == 0 || neon.multiplies != quad*avx2.multiplies {
				t.Fatalf("%s %s: the loops are %+v and %+v", kind, work.shape, neon, avx2)
			}
			passes := blocks * columns * quad / float64(neon.multiplies) / 1e6
			row := fmt.Sprintf("| %s | %s | %.1f | %.1f | %.2f | %.1f | %.0f |", strings.ToUpper(kind), work.name, passes*float64(neon.instructions),
				passes*float64(quad*avx2.instructions), float64(neon.instructions)/float64(quad*avx2.instructions), passes*float64(neon.loads), passes*float64(neon.bytes))
			if !strings.Contains(string(document), row) {
				t.Errorf("docs/arm64.md has not the row\n%s", row)
			}
		}
	}
}

// TestCountsOfQuantizedPanels compares the table of docs/arm64.md with what the kernels execute for one panel: 64
// columns over k = 1536.
func TestCountsOfQuantizedPanels(t *testing.T) {
	document, err := os.ReadFile("../../docs/arm64.md")
	if err != nil {
		t.Fatal(err)
	}
	const supers, groupBlocks = 6, 48 * quantGroups
	counted := func(file, kernel string, rows int) loop {
		trips := map[string]int{
			"clear": rows, "oneSuper": supers, "oneGroup": supers * quantGroups, "oneBlock": groupBlocks,
			"allSuper": supers, "allGroup": supers * quantGroups, "allBlock": groupBlocks, "pair": groupBlocks * rows / 2, "row": groupBlocks * rows,
			"block": groupBlocks / quantGroups, "group": groupBlocks,
		}
		taken := []string{"even"}
		if rows == 1 {
			taken = []string{"single"}
		}
		all, err := executed("../../engine/cpu/kernel_"+file+"_amd64.s", "quant"+kernel, trips)
		if file != "avx2" {
			all, err = executed("../../engine/cpu/kernel_"+file+"quant_arm64.s", "quant"+kernel, trips, taken...)
		}
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	for _, kind := range []struct{ typ, name string }{
		{"Q8_0", "b8h"}, {"Q4_0", "n4h"}, {"Q4_1", "n4hm"}, {"Q4_K", "n4km"}, {"Q5_0", "n5h"}, {"Q5_K", "n5km"}, {"Q6_K", "n6k2"},
	} {
		for _, rows := range []int{1, 32} {
			dot, wide, avx2 := counted("neondot", kind.name+"NEONDOT", rows), counted("neon", kind.name+"NEON", rows), counted("avx2", kind.name+"AVX2", rows)
			thousands := func(n int) string { return fmt.Sprintf("%.1f", float64(n)/1e3) }
			row := fmt.Sprintf("| %s | %d | %s | %s | %s | %s | %s |", kind.typ, rows, thousands(dot.instructions), thousands(wide.instructions),
				thousands(avx2.instructions), thousands(dot.loads), thousands(dot.bytes))
			if !strings.Contains(string(document), row) {
				t.Errorf("docs/arm64.md has not the row\n%s", row)
			}
		}
	}
}

// TestLoaded checks the bytes that instructions load.
func TestLoaded(t *testing.T) {
	for line, want := range map[string]int{
		"VLD1.P 64(R0), [V25.S4, V26.S4, V27.S4, V28.S4]": 64, "VST1.P [V0.S4], 16(R8)": 0, "VLD1R (R0), [V1.S4]": 4,
		"FLDPQ 32(R0), (F30, F31)": 32, "FMOVQ.P 16(R4), F24": 16, "FMOVQ.P F3, 16(R4)": 0, "FMOVS scale+56(FP), F0": 4, "ADD R1, R2, R3": 0,
		"VMOVUPS (AX), Y1": 32, "VMOVUPS Y1, (AX)": 0, "VBROADCASTSS (AX)(BX*2), Y3": 4, "VFMADD231PS 32(AX), Y1, Y2": 32, "VCVTPH2PS (AX), Y1": 16,
		"VMULPS (AX), Z1, Z2": 64, "VADDPS Y1, Y2, Y3": 0, "ADDQ (AX), BX": 0,
	} {
		name, operands, _ := strings.Cut(line, " ")
		if got := loaded(name, operands); got != want {
			t.Errorf("%s loads %d bytes, want %d", line, got, want)
		}
	}
}
