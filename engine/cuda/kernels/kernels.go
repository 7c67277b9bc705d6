package kernels

import "embed"

//go:embed *.ptx
var modules embed.FS

// Names are the modules, each one file of PTX.
var names = [...]string{"layers", "gemm", "attention", "sample", "pages"}

// Names returns the modules' names.
func Names() []string { return names[:] }

// PTX is the text of a module of that name. It panics if there is none.
func PTX(name string) []byte {
	text, err := modules.ReadFile(name + ".ptx")
	if err != nil {
		panic("kernels: no module " + name)
	}
	return text
}
