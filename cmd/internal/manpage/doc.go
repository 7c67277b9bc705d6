// Package manpage owns manual pages: it writes one for a program and one for each of its commands, from kong's model of
// them, which also makes the texts of --help. It never has a text of its own about a command.
//
//	err := manpage.Write(dir, app.Model, manpage.About{Version: "v0.1.0", Date: "2026-11-29", EnvPrefix: "COPPICE_"})
package manpage
