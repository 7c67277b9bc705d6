package openai

// promptList reads a text, texts, token ids, or arrays of token ids.
func (d *decoder) promptList(v value) []Prompt {
	s := scanner{B: v.Raw}
	all, _ := d.promptsAt(&s, v.Top, nil)
	return all
}

// promptsAt appends the prompts at s to all, moves s past them and returns their number. top is
// the whole body, for the paths in errors. For a proxy it appends only the first prompt, with at
// most d.most of its tokens, but counts all prompts.
func (d *decoder) promptsAt(s *scanner, top []byte, all []Prompt) (_ []Prompt, count int) {
	const what = "a string, an array of strings, an array of token ids, or an array of such arrays"
	first := s.Next()
	v := value{Raw: s.B[s.At:], Top: top}
	switch first {
	case '"':
		return append(all, Prompt{Text: d.textAt(s)}), 1
	case '[':
		s.At++
	default:
		if s.Skip(); first != 'n' {
			d.Want(v, what)
		}
		return all, 0
	}
	left := maxPromptTokens
	if d.Lenient {
		left = d.most
	}
	if c := s.Next(); c == '-' || '0' <= c && c <= '9' {
		return append(all, Prompt{Tokens: d.idsAt(s, v, d.room(v, left), left)}), 1
	}
	for ; s.More(count, ']'); count++ {
		c := s.Next()
		e := value{Raw: s.B[s.At:], Top: top}
		switch {
		case d.Lenient && count > 0:
			s.Skip()
		case count == maxPrompts:
			d.Fail(v, "invalid_value", "%s has over %d prompts", v, maxPrompts)
		case count > 0 && (c == '"') != (all[0].Tokens == nil):
			d.Fail(e, "invalid_type", "%s is %s, unlike the prompts before it", e, e.Kind())
		case c == '"':
			all = append(all, Prompt{Text: d.textAt(s)})
		case c == '[':
			s.At++
			p := Prompt{Tokens: d.idsAt(s, e, d.ids, left)}
			left -= len(p.Tokens)
			all = append(all, p)
		default:
			d.Want(e, "a string, a token id or an array of token ids")
			s.Skip()
		}
	}
	if count == 0 {
		d.Fail(v, "invalid_value", "%s is empty, want at least one prompt", v)
	}
	return all, count
}

// textAt reads the string at s.
func (d *decoder) textAt(s *scanner) string {
	raw, escaped := s.Quoted()
	return d.Unescaped(raw, escaped)
}
