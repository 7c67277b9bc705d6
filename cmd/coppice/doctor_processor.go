package main

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// armParts has the processors that arm64 machines with Linux have, by implementer and part as
// /proc/cpuinfo has them. From Linux, arch/arm64/include/asm/cputype.h.
var armParts = map[string]string{
	"0x41 0xd03": "Cortex-A53", "0x41 0xd04": "Cortex-A35", "0x41 0xd05": "Cortex-A55", "0x41 0xd07": "Cortex-A57", "0x41 0xd08": "Cortex-A72",
	"0x41 0xd09": "Cortex-A73", "0x41 0xd0a": "Cortex-A75", "0x41 0xd0b": "Cortex-A76", "0x41 0xd0c": "Neoverse-N1", "0x41 0xd0d": "Cortex-A77",
	"0x41 0xd40": "Neoverse-V1", "0x41 0xd41": "Cortex-A78", "0x41 0xd44": "Cortex-X1", "0x41 0xd46": "Cortex-A510", "0x41 0xd47": "Cortex-A710",
	"0x41 0xd48": "Cortex-X2", "0x41 0xd49": "Neoverse-N2", "0x41 0xd4d": "Cortex-A715", "0x41 0xd4e": "Cortex-X3", "0x41 0xd4f": "Neoverse-V2",
	"0x41 0xd80": "Cortex-A520", "0x41 0xd81": "Cortex-A720", "0x41 0xd82": "Cortex-X4", "0x41 0xd84": "Neoverse-V3", "0x41 0xd8e": "Neoverse-N3",
}

// armFeatures are the features that the kernels use or could use, as Linux names them.
var armFeatures = []string{"asimd", "asimddp", "i8mm", "asimdhp", "bf16", "sve", "sve2"}

// lookAtARM fills in what the files of a Linux system on arm64 say of the processor: such processors have
// no name for themselves.
func (f *cpuFacts) lookAtARM(root fs.FS) {
	info, _ := fs.ReadFile(root, "proc/cpuinfo")
	var kinds []string // a machine may have fast and slow cores
	implementer := ""
	for line := range strings.Lines(string(info)) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "CPU implementer":
			implementer = value
		case "CPU part":
			name, known := armParts[implementer+" "+value]
			if !known {
				name = fmt.Sprintf("implementer %s part %s", implementer, value)
			}
			if !slices.Contains(kinds, name) {
				kinds = append(kinds, name)
			}
		case "Features":
			f.Features = nil
			for _, feature := range strings.Fields(value) {
				if slices.Contains(armFeatures, feature) {
					f.Features = append(f.Features, strings.ToUpper(feature))
				}
			}
		}
	}
	f.Brand = strings.Join(kinds, " and ")
	if board, _ := fs.ReadFile(root, "proc/device-tree/model"); len(board) > 0 && f.Brand != "" {
		f.Brand += " (" + strings.Trim(string(board), "\x00\n ") + ")"
	}
}
