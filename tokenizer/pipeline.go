package tokenizer

import "cmp"

// readPipeline checks that Encode and Decode support every step of the file, and records the
// steps before merging.
func (t *Tokenizer) readPipeline(f *fileJSON, forms Forms) {
	checkModel(f.Model)
	steps := f.Normalizer.steps("normalizer", 0)
	if len(steps) > maxSteps {
		unsupported("%d normalizers; supported are %d", len(steps), maxSteps)
	}
	for _, p := range steps {
		t.normalizers = append(t.normalizers, newNormalizer(p, forms))
	}
	steps = f.PreTokenizer.steps("pre_tokenizer", 0)
	if len(steps) > maxSteps {
		unsupported("%d pre_tokenizers; supported are %d", len(steps), maxSteps)
	}
	for _, p := range steps {
		t.readPreTokenizer(p)
	}
	for _, c := range t.cutters {
		if c.kind == cutMetaspace && c.prepend == prependFirst && t.dropsBeginning() {
			unsupported("Metaspace with prepend_scheme \"first\" after a normalizer that takes away a text's beginning; supported are other schemes there")
		}
	}
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
func checkModel(m *modelJSON) {
	switch {
	case m == nil:
		invalid("tokenizer.json has no model")
	case m.Type != "BPE" && (m.Type != "" || m.Merges == nil):
		unsupported("model type %q; supported is BPE", m.Type)
	case m.Dropout != nil && *m.Dropout != 0:
		unsupported("dropout %v, which makes encoding random; supported is null", *m.Dropout)
	case m.Prefix != "":
		unsupported("continuing_subword_prefix %q; supported is none", m.Prefix)
	case m.Suffix != "":
		unsupported("end_of_word_suffix %q; supported is none", m.Suffix)
	case m.Vocab == nil || m.Merges == nil:
		invalid("the model has no vocab or no merges")
	}
}

// wantPreTokenizer ends the errors about pre-tokenizers.
const wantPreTokenizer = "supported are none, Split, Digits, Metaspace, ByteLevel as the last step, and Sequences of these"

// readPreTokenizer appends the step p to t.cutters.
func (t *Tokenizer) readPreTokenizer(p *partJSON) {
	if t.byteLevel {
		unsupported("pre_tokenizer %q after ByteLevel; %s", p.Type, wantPreTokenizer)
	}
	switch p.Type {
	case "Split":
		b, ok := behaviors[p.Behavior]
		if !ok {
			unsupported("behavior %q of pre_tokenizer Split; supported are Isolated, Removed, Contiguous, MergedWithPrevious and MergedWithNext", p.Behavior)
		}
		t.addSplit(p.Pattern.Regex, cutter{literal: p.Pattern.String, behavior: b, invert: p.Invert})
	case "Digits":
		expr := `\p{N}+`
		if p.Individual {
			expr = `\p{N}`
		}
		t.addSplit(expr, cutter{})
	case "ByteLevel":
		t.byteLevel = true
		if p.AddPrefixSpace == nil || *p.AddPrefixSpace {
			t.cutters = append(t.cutters, cutter{kind: cutPrefix})
		}
		if p.UseRegex == nil || *p.UseRegex {
			t.addSplit(PatternGPT2, cutter{})
		}
	case "Metaspace":
		literal := cmp.Or(p.Replacement, metaspace)
		t.cutters = append(t.cutters, cutter{kind: cutMetaspace, literal: literal, prepend: prependOf(p)})
		if p.SplitAll == nil || *p.SplitAll { // each replacement begins a piece
			t.addSplit("", cutter{literal: literal, behavior: mergedWithNext})
		}
	default:
		unsupported("pre_tokenizer %q; %s", p.Type, wantPreTokenizer)
	}
}

// prependOf returns the prepend_scheme of a Metaspace. Older files have the flag add_prefix_space
// instead.
func prependOf(p *partJSON) prepend {
	if p.PrependScheme == nil {
		if p.AddPrefixSpace != nil && !*p.AddPrefixSpace {
			return prependNever
		}
		return prependAlways
	}
	schemes := map[string]prepend{"always": prependAlways, "first": prependFirst, "never": prependNever}
	scheme, ok := schemes[*p.PrependScheme]
	if !ok {
		unsupported("prepend_scheme %q of Metaspace; supported are always, first and never", *p.PrependScheme)
	}
	return scheme
}

// behaviors by their names in the file.
var behaviors = map[string]behavior{
	"Isolated": isolated, "Removed": removed, "Contiguous": contiguous,
	"MergedWithPrevious": mergedWithPrevious, "MergedWithNext": mergedWithNext,
}

// addSplit appends c, which splits by the expression expr or, if that is "", by c.literal.
func (t *Tokenizer) addSplit(expr string, c cutter) {
	if expr != "" {
		c.pattern = newPattern(expr)
	}
	t.cutters = append(t.cutters, c)
}
