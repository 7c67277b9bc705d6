package terminal

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// Out returns a writer to the standard output. If that is a terminal, the writer shows control characters
// instead of sending them; otherwise it writes bytes unchanged. Each call of Write must end with a whole
// character, as those of package fmt do: the rest of one is shown as single bytes.
func Out() io.Writer { return to(os.Stdout) }

// Err is Out for the standard error.
func Err() io.Writer { return to(os.Stderr) }

func to(f *os.File) io.Writer {
	if term.IsTerminal(int(f.Fd())) {
		return writer{f}
	}
	return f
}

// writer shows the control characters of what is written.
type writer struct{ to io.Writer }

func (w writer) Write(p []byte) (int, error) {
	text := string(p)
	if shown := show(text); shown != text {
		if _, err := io.WriteString(w.to, shown); err != nil {
			return 0, err
		}
		return len(p), nil
	}
	return w.to.Write(p)
}

// show returns text with control characters, except newline and tab, with bidirectional controls and with
// bytes that are not UTF-8 as escapes: \x1b, \u202e, \xff.
func show(text string) string {
	at := strings.IndexFunc(text, controls)
	if at < 0 && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case controls(r) && r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case controls(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteString(text[i : i+size])
		}
		i += size
	}
	return b.String()
}

// controls reports whether a terminal must not get r: the control characters C0, DEL and C1 but newline
// and tab, and Unicode's bidirectional controls (UAX #9, section 2).
func controls(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < ' ' || r >= 0x7f && r < 0xa0:
		return true
	}
	return r == 0x61c || r == 0x200e || r == 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// mostQuoted is the length of the longest text between the quotes of Quote, in bytes.
const mostQuoted = 200

// Quote returns foreign text for an error: on one line, in quotes, with escapes for all characters that
// are not printable. Of text that would take more than 200 bytes it returns the beginning, followed by …
func Quote[T ~string | ~[]byte](text T) string {
	rest, out := string(text), []byte{'"'}
	for len(rest) > 0 {
		_, size := utf8.DecodeRuneInString(rest)
		quoted := strconv.Quote(rest[:size])
		if len(out)+len(quoted)-2 > mostQuoted+1 {
			return string(out) + `"…`
		}
		out, rest = append(out, quoted[1:len(quoted)-1]...), rest[size:]
	}
	return string(append(out, '"'))
}
