package tokenizer

// readPipeline checks that the file asks for nothing but what Encode and Decode
// do, and learns which splitter and whether to normalize.
func (t *Tokenizer) readPipeline(f *fileJSON) error {
	if err := checkModel(f.Model); err != nil {
		return err
	}
	var err error
	if t.nfc, err = normalizerOf(f.Normalizer); err != nil {
		return err
	}
	if t.split, err = splitterOf(f.PreTokenizer); err != nil {
		return err
	}
	return checkDecoder(f.Decoder)
}

// checkModel accepts byte-level BPE. An unk_token does not matter, for every
// byte has a token; nor do fuse_unk and the like.
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
	case m.ByteFallback:
		return unsupported("byte_fallback, the way of SentencePiece; supported is byte-level BPE")
	case m.Vocab == nil || m.Merges == nil:
		return invalid("the model has no vocab or no merges")
	}
	return nil
}

// wantPreTokenizer ends the errors about pre-tokenizers.
const wantPreTokenizer = "supported are ByteLevel and a Sequence of Split and ByteLevel, as in Llama 3, Qwen 2 to 3 and GPT-2"

func splitterOf(p *partJSON) (splitter, error) {
	switch {
	case p == nil:
		return 0, unsupported("pre_tokenizer null; %s", wantPreTokenizer)
	case p.Type == "ByteLevel":
		if p.UseRegex != nil && !*p.UseRegex {
			return 0, unsupported("pre_tokenizer ByteLevel with use_regex false and no Split before it; %s", wantPreTokenizer)
		}
		return splitGPT2, checkByteLevel(p)
	case p.Type != "Sequence":
		return 0, unsupported("pre_tokenizer %q; %s", p.Type, wantPreTokenizer)
	case len(p.Pretokenizers) == 1:
		return splitterOf(&p.Pretokenizers[0])
	}
	for _, step := range p.Pretokenizers {
		if step.Type != "Split" && step.Type != "ByteLevel" {
			return 0, unsupported("pre_tokenizer %q in a Sequence; %s", step.Type, wantPreTokenizer)
		}
	}
	if len(p.Pretokenizers) != 2 || p.Pretokenizers[0].Type != "Split" || p.Pretokenizers[1].Type != "ByteLevel" {
		return 0, unsupported("pre_tokenizer Sequence of other steps than one Split and one ByteLevel; %s", wantPreTokenizer)
	}
	last := &p.Pretokenizers[1]
	if last.UseRegex == nil || *last.UseRegex {
		return 0, unsupported("use_regex true of ByteLevel after a Split; supported is false")
	}
	if err := checkByteLevel(last); err != nil {
		return 0, err
	}
	return splitOf(&p.Pretokenizers[0])
}

func checkByteLevel(p *partJSON) error {
	if p.AddPrefixSpace == nil || *p.AddPrefixSpace {
		return unsupported("add_prefix_space true of the ByteLevel pre_tokenizer; supported is false")
	}
	return nil
}

// splitOf recognises the pattern. The patterns match everything, so that to
// isolate the matches is the same as to remove what is not matched.
func splitOf(p *partJSON) (splitter, error) {
	if p.Behavior != "Isolated" && (p.Behavior != "Removed" || !p.Invert) {
		return 0, unsupported("behavior %q (invert %v) of pre_tokenizer Split; supported are Isolated, and Removed with invert",
			p.Behavior, p.Invert)
	}
	switch p.Pattern.Regex {
	case patternLlama3:
		return splitLlama3, nil
	case patternQwen2:
		return splitQwen2, nil
	case patternGPT2:
		return splitGPT2, nil
	case "":
		return 0, unsupported("pattern string %q of pre_tokenizer Split; supported are regular expressions", p.Pattern.String)
	}
	return 0, unsupported("regular expression %q of pre_tokenizer Split; supported are those of Llama 3 (%s), Qwen 2 (%s) and GPT-2 (%s)",
		p.Pattern.Regex, patternLlama3, patternQwen2, patternGPT2)
}

func checkDecoder(p *partJSON) error {
	switch {
	case p == nil:
		return unsupported("decoder null; supported is ByteLevel")
	case p.Type == "ByteLevel":
		return nil
	case p.Type == "Sequence" && len(p.Decoders) == 1:
		return checkDecoder(&p.Decoders[0])
	}
	return unsupported("decoder %q; supported is ByteLevel", p.Type)
}
