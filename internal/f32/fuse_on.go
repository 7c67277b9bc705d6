//go:build arm64 || loong64 || ppc64 || ppc64le || riscv64 || s390x || amd64.v3

package f32

// mayFuse is set where the compiler knows fused instructions that every processor of the target has.
const mayFuse = true
