// Package complete owns the completion of command lines in shells: the candidates for the last word of a line, and the
// scripts that connect bash, zsh and fish with them. It never reads a file, and knows only what kong's model of the
// commands says and the values that its caller adds.
//
// The scripts ask the installed program at each key, so they are right for whichever version that is:
//
//	text, err := complete.Script("bash", "coppice")
//	found := complete.Words(app.Model, []string{"serve", "--pol"}, nil)
package complete
