// Package bail carries an error from deep within a recursion to the function that began it, so that
// parsers and builders need not return an error at each level. It owns that panic and nothing else;
// no error leaves by a panic the function that defers [Recover].
//
//	func parse(text string) (t *tree, err error) {
//		defer bail.Recover(&err)
//		return (&parser{rest: text}).tree(), nil // which may call bail.Out
//	}
package bail

// out is the value of the panic.
type out struct{ err error }

// Out ends the calls up to the one that has deferred [Recover], which returns err.
func Out(err error) { panic(out{err}) }

// Recover sets *err to the error given to [Out], if the function that defers it ends so. It does not
// recover other panics.
func Recover(err *error) {
	switch p := recover().(type) {
	case nil:
	case out:
		*err = p.err
	default:
		panic(p)
	}
}
