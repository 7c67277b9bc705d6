//go:build !(arm64 || loong64 || ppc64 || ppc64le || riscv64 || s390x || amd64.v3)

package f32

// mayFuse is not set where the compiler uses no fused instructions, as some processors lack them.
const mayFuse = false
