package tokenizer

import "cmp"

// readPipeline checks that Encode and Decode support every step of the file, and records the
// steps before merging.
func (t *Tokenizer) readPipeline(f *fileJSON) error {
	if err := checkModel(f.Model); err != nil {
		return err
	}
	steps, err := f.Normalizer.steps("normalizer", 0)
	if len(steps) > maxSteps {
		return unsupported("%d normalizers; supported are %d", len(steps), maxSteps)
	}
	for i := 0; i < len(steps) && err == nil; i++ {
		var n normalizer
		n, err = newNormalizer(steps[i])
		t.normalizers = append(t.normalizers, n)
	}
	if err != nil {
		return err
	}
	if steps, err = f.PreTokenizer.steps("pre_tokenizer", 0); err != nil {
		return err
	}
	if len(steps) > maxSteps {
		return unsupported("%d pre_tokenizers; supported are %d", len(steps), maxSteps)
	}
	for _, p := range steps {
		if err := t.readPreTokenizer(p); err != nil {
			return err
		}
	}
	for _, c := range t.cutters {
		if c.kind == cutMetaspace && c.prepend == prependFirst && t.dropsBeginning() {
			return unsupported("Metaspace with prepend_scheme \"first\" after a normalizer that takes away a text's beginning; supported are other schemes there")
		}
	}
	return nil
}

// maxSteps bounds the normalizers, and the pre-tokenizers, of a file.
const maxSteps = 32

// dropsBeginning reports whether a normalizer may remove the beginning of the text.
func (t *Tokenizer) dropsBeginning() bool {
	for _, n := range t.normalizers {
		if n.kind == normalStrip && n.left || n.kind == normalReplace && n.content == "" {
			return true
		}
	}
	return false
}

// checkModel accepts BPE over bytes or runes.
func checkModel(m *modelJSON) error {
	switch {
	case m == nil:
		return invalid("tokenizer.json has no model")
	case m.Type != "BPE" && (m.Type != "" || m.Merges == nil):
		return unsupported("model type %q; supported is BPE", m.Type)
	case m.Dropout != nil && *m.Dropout != 0:
		return unsupported("dropout %v, which makes encoding random; supported is null", *m.Dropout)
	case m.Prefix != "":
		return unsupported("continuing_subword_prefix %q; supported is none", m.Prefix)
	case m.Suffix != "":
		return unsupported("end_of_word_suffix %q; supported is none", m.Suffix)
	case m.Vocab == nil || m.Merges == nil:
		return invalid("the model has no vocab or no merges")
	}
	return nil
}

// wantPreTokenizer ends the errors about pre-tokenizers.
const wantPreTokenizer = "supported are none, Split, Digits, Metaspace, ByteLevel as the last step, and Sequences of these"

// readPreTokenizer appends the step p to t.cutters.
func (t *Tokenizer) readPreTokenizer(p *partJSON) error {
	if t.byteLevel {
		return unsupported("pre_tokenizer %q after ByteLevel; %s", p.Type, wantPreTokenizer)
	}
	switch p.Type {
	case "Split":
		b, ok := behaviors[p.Behavior]
		if !ok {
			return unsupported("behavior %q of pre_tokenizer Split; supported are Isolated, Removed, Contiguous, MergedWithPrevious and MergedWithNext", p.Behavior)
		}
		return t.addSplit(p.Pattern.Regex, cutter{literal: p.Pattern.String, behavior: b, invert: p.Invert})
	case "Digits":
		if p.Individual {
			return t.addSplit(`\p{N}`, cutter{})
		}
		return t.addSplit(`\p{N}+`, cutter{})
	case "ByteLevel":
		t.byteLevel = true
		if p.AddPrefixSpace == nil || *p.AddPrefixSpace {
			t.cutters = append(t.cutters, cutter{kind: cutPrefix})
		}
		if p.UseRegex == nil || *p.UseRegex {
			return t.addSplit(PatternGPT2, cutter{})
		}
		return nil
	case "Metaspace":
		scheme, err := prependOf(p)
		if err != nil {
			return err
		}
		literal := cmp.Or(p.Replacement, metaspace)
		t.cutters = append(t.cutters, cutter{kind: cutMetaspace, literal: literal, prepend: scheme})
		if p.SplitAll == nil || *p.SplitAll { // each replacement begins a piece
			return t.addSplit("", cutter{literal: literal, behavior: mergedWithNext})
		}
		return nil
	}
	return unsupported("pre_tokenizer %q; %s", p.Type, wantPreTokenizer)
}

// prependOf returns the prepend_scheme of a Metaspace. Older files have the flag add_prefix_space
// instead.
func prependOf(p *partJSON) (prepend, error) {
	if p.PrependScheme == nil {
		if p.AddPrefixSpace != nil && !*p.AddPrefixSpace {
			return prependNever, nil
		}
		return prependAlways, nil
	}
	schemes := map[string]prepend{"always": prependAlways, "first": prependFirst, "never": prependNever}
	scheme, ok := schemes[*p.PrependScheme]
	if !ok {
		return 0, unsupported("prepend_scheme %q of Metaspace; supported are always, first and never", *p.PrependScheme)
	}
	return scheme, nil
}

// behaviors by their names in the file.
var behaviors = map[string]behavior{
	"Isolated": isolated, "Removed": removed, "Contiguous": contiguous,
	"MergedWithPrevious": mergedWithPrevious, "MergedWithNext": mergedWithNext,
}

// addSplit appends c, which splits by the expression expr or, if that is "", by c.literal.
func (t *Tokenizer) addSplit(expr string, c cutter) (err error) {
	if expr != "" {
		c.pattern, err = newPattern(expr)
	}
	t.cutters = append(t.cutters, c)
	return err
}
