package parse

import "strings"

// channels separates an output in the Harmony format into reasoning, text and calls. It is a
// sequence of messages, each with a header,
//
//	<|start|>assistant<|channel|>analysis<|message|>I need the weather.<|end|>
//	<|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{…}<|call|>
//
// of which the prompt has the first <|start|>assistant. The recipient may stand before the channel
// as well. The channel analysis is reasoning, and so are calls of tools built into the model;
// final, and commentary without recipient, are the text of the answer. Text before any header
// is text, and the markers themselves are never given.
//
// channels delays the header of a message and the beginning of a marker.
//
// Source: the page on the Harmony response format in openai/harmony.
type channels struct {
	calls  *calls
	state  channelState
	kind   Kind   // of the content
	held   string // at the beginning: the text so far; later: what may begin a marker
	header string // of the message, with its markers
}

type channelState uint8

const (
	outputBegins channelState = iota
	inHeader
	inContent
	inCall // the content is the arguments of a call
)

// The markers, and the bound on headers.
const (
	startMarker, channelMarker, messageMarker = "<|start|>", "<|channel|>", "<|message|>"
	recipientMarker, functions                = "to=", "functions."

	maxHeader = 256
)

var markers = []string{startMarker, channelMarker, messageMarker, "<|constrain|>", "<|end|>", "<|call|>", "<|return|>"}

// next appends the events of text, the next piece of the output. last says that the output has
// ended.
func (h *channels) next(events []Event, text string, last bool) []Event {
	if h.state == outputBegins {
		text = h.begin(text, last)
	} else {
		text, h.held = h.held+text, ""
	}
	for text != "" {
		at, marker := findMarker(text)
		if events = h.plain(events, text[:at]); marker == "" {
			h.held = text[at:]
			break
		}
		text = text[at+len(marker):]
		events = h.mark(events, marker)
	}
	if last {
		events = h.end(events)
	}
	return events
}

// begin returns the text that can be read, once it is known whether the output begins with a
// header, which then begins with a recipient.
func (h *channels) begin(text string, last bool) string {
	h.held += text
	all := h.held
	text = trimSpaceLeft(all)
	switch near := len(all)-len(text) <= heldSpace; {
	case near && strings.HasPrefix(text, recipientMarker):
		h.state = inHeader
	case near && !last && strings.HasPrefix(recipientMarker, text):
		return ""
	default:
		h.state = inContent
	}
	h.held = ""
	return all
}

// findMarker returns the first marker in text and its position. If there is none, it returns the
// position of what may begin one at the end of text, which is the end if nothing does.
func findMarker(text string) (at int, marker string) {
	for ; ; at++ {
		next := strings.IndexByte(text[at:], '<')
		if next < 0 {
			return len(text), ""
		}
		at += next
		for _, m := range markers {
			if strings.HasPrefix(text[at:], m) {
				return at, m
			}
			if strings.HasPrefix(m, text[at:]) {
				return at, ""
			}
		}
	}
}

// plain reads text without markers.
func (h *channels) plain(events []Event, text string) []Event {
	switch {
	case text == "":
	case h.state == inCall:
		return append(events, h.calls.next(text, false)...)
	case h.state == inContent:
		return append(events, Event{h.kind, text})
	default:
		h.header += text
		return h.bound(events)
	}
	return events
}

// bound gives a header that is too long as text, without its markers.
func (h *channels) bound(events []Event) []Event {
	if len(h.header) <= maxHeader {
		return events
	}
	h.state, h.kind = inContent, Text
	for _, m := range markers {
		h.header = strings.ReplaceAll(h.header, m, "")
	}
	if h.header == "" {
		return events
	}
	return append(events, Event{Text, h.header})
}

// mark reads a marker.
func (h *channels) mark(events []Event, marker string) []Event {
	switch marker {
	case messageMarker:
		if h.state == inHeader {
			h.open()
		}
		return events
	case startMarker, channelMarker:
		if h.state == inHeader && marker == channelMarker {
			break
		}
		events = h.close(events, false)
		h.state, h.header = inHeader, marker
		return events
	case "<|constrain|>":
	default:
		return h.close(events, false)
	}
	if h.state != inHeader {
		return events
	}
	h.header += marker
	return h.bound(events)
}

// open begins the content of a message, whose header is complete.
func (h *channels) open() {
	_, recipient := field(h.header, recipientMarker)
	_, channel := field(h.header, channelMarker)
	name, called := strings.CutPrefix(recipient, functions)
	h.state, h.kind = inContent, Text
	switch {
	case called && name != "" || h.calls.tool(name):
		h.state = inCall
		h.calls.enter(name)
	case recipient != "" || channel == "analysis":
		h.kind = Thought
	}
}

// field returns what stands after mark in a header, up to white space or the next marker. ended
// reports whether there is one of them.
func field(header, mark string) (ended bool, value string) {
	_, after, _ := strings.Cut(header, mark)
	end := strings.IndexAny(after, spaces+"<")
	if end < 0 {
		return false, after
	}
	return true, after[:end]
}

// close ends the content of a message, or drops its header. What follows is text. cut says that
// the output has ended: only then are arguments given that are not complete.
func (h *channels) close(events []Event, cut bool) []Event {
	if h.state == inCall {
		if !cut && h.calls.at != inText {
			h.calls.broken()
		}
		events = append(events, h.calls.next("", true)...)
	}
	h.state, h.kind = inContent, Text
	return events
}

// end gives what is delayed once the output has ended.
func (h *channels) end(events []Event) []Event {
	events = h.plain(events, h.held)
	h.held = ""
	if h.state != inHeader {
		return h.close(events, true)
	}
	ended, recipient := field(h.header, recipientMarker)
	name, called := strings.CutPrefix(recipient, functions)
	switch {
	case ended && called && h.calls.exact:
		h.calls.enter(name)
		h.state = inCall
		return h.close(events, true)
	case !strings.Contains(h.header, "<|"):
		return append(events, Event{Text, h.header})
	}
	return events
}
