package schedtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coppice-llm/coppice/kv"
	"github.com/coppice-llm/coppice/radixcache"
	"github.com/coppice-llm/coppice/scheduler"
)

func (s *Script) abort(a *args) (string, error) {
	id := scheduler.RequestID(a.number("id", 0))
	var cause error
	if text := a.text("cause", ""); text != "" {
		cause = errors.New(text)
	}
	if err := a.done(); err != nil {
		return "", err
	}
	s.rig.abort(id, cause)
	return s.told(), nil
}

// fail loses the device, and the scheduler runs nothing afterwards. fail row only makes the next
// row fail.
func (s *Script) fail(a *args) (string, error) {
	row := a.has("row")
	if err := a.done(); err != nil {
		return "", err
	}
	if row {
		s.badRow, s.rig.opts.Faults = true, true
		return "", nil
	}
	s.rig.shut(errDevice)
	return s.told(), nil
}

// rowFault is the device's Faults.Row.
func (s *Script) rowFault(uint64, int) error {
	if !s.badRow {
		return nil
	}
	s.badRow = false
	return errRow
}

// tick advances the clock. Plans that are done by then still need complete.
func (s *Script) tick(a *args) (string, error) {
	var key string
	if len(a.list) == 1 {
		key = a.list[0].Key
	}
	d, err := parseTick(key)
	if err != nil {
		return "", err
	}
	passed := false
	s.rig.clock.At(s.rig.clock.Now()+d, func() { passed = true })
	for !passed && s.rig.clock.Step() {
	}
	return s.told(), nil
}

// post delivers messages by hand.
func (s *Script) post(a *args) (string, error) {
	n := a.first(1)
	if err := a.done(); err != nil {
		return "", err
	}
	before := s.rig.mail.underway
	for range n {
		if s.rig.mail.underway == 0 {
			break
		}
		for sent := s.rig.mail.delivered; s.rig.mail.delivered == sent && s.rig.clock.Step(); {
		}
	}
	return fmt.Sprintf("messages in flight: %d, before: %d", s.rig.mail.underway, before), nil
}

func (s *Script) metrics(a *args) (string, error) {
	if err := a.done(); err != nil {
		return "", err
	}
	return s.rig.sched.Metrics().String(), nil
}

// events shows the cache's events since the previous call.
func (s *Script) events(a *args) (string, error) {
	if err := a.done(); err != nil {
		return "", err
	}
	var b strings.Builder
	for _, ev := range *s.rig.log {
		fmt.Fprintf(&b, "%v", ev.Kind)
		if ev.Namespace != (kv.Namespace{}) {
			fmt.Fprintf(&b, " salt=%q lora=%q", ev.Namespace.Salt, ev.Namespace.LoRA)
		}
		for i := range ev.Blocks {
			fmt.Fprintf(&b, " (%s)", formatTokens(ev.Blocks[i].Tokens))
		}
		if ev.Kind == kv.Removed {
			fmt.Fprintf(&b, " %d blocks", len(ev.Hashes))
		}
		b.WriteByte('\n')
	}
	*s.rig.log = (*s.rig.log)[:0]
	if b.Len() == 0 {
		return "none", nil
	}
	return b.String(), nil
}

// tree shows the radix cache, one line per node, children after their parent.
func (s *Script) tree(a *args) (string, error) {
	if err := a.done(); err != nil {
		return "", err
	}
	if s.rig.cache == nil {
		return "", errors.New("there is no cache to be seen")
	}
	return formatTree(s.rig.cache), nil
}

func formatTree(c *radixcache.Cache) string {
	var b strings.Builder
	path := []radixcache.NodeID{radixcache.Root} // path of parents
	var space kv.Namespace
	for v := range c.Walk() {
		path = path[:slices.Index(path, v.Parent)+1]
		if v.Namespace != space {
			space = v.Namespace
			fmt.Fprintf(&b, "salt=%q lora=%q\n", space.Salt, space.LoRA)
		}
		fmt.Fprintf(&b, "%s[%d,%d) %s pages=%s", strings.Repeat("  ", len(path)-1), v.Start, v.Start+len(v.Tokens), formatTokens(v.Tokens), formatPages(v.Pages))
		if v.Tail {
			b.WriteString(" tail")
		}
		if v.Pins > 0 {
			b.WriteString(" pinned")
		}
		b.WriteByte('\n')
		path = append(path, v.ID)
	}
	if b.Len() == 0 {
		return "empty"
	}
	return b.String()
}
