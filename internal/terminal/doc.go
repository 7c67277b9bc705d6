// Package terminal prints foreign text on terminals: what a model, a server, a hub or a file writes. It
// owns which characters a terminal may get. It never changes what goes to a pipe or a file, and never
// opens a terminal.
//
// A terminal obeys control characters in the text that it shows. They set its title, write its clipboard,
// clear its screen, or let it type an answer; bidirectional controls show text in another order than it
// has. So Out and Err show these characters as escapes, such as \x1b, instead of sending them:
//
//	fmt.Fprintln(terminal.Out(), text)
//
// An error that quotes foreign text does so by Quote:
//
//	return fmt.Errorf("the server answers %s", terminal.Quote(body))
//
// Its functions may be called from any goroutine.
package terminal
