// Package chat owns the conversion of a conversation to a prompt: the chat template
// of a model directory, written in the subset of Jinja that such templates use,
// rendered as Hugging Face's apply_chat_template renders it. It never tokenizes,
// never reads a clock, and never renders without a bound on the work.
//
// A [Template] is parsed once and immutable: any number of goroutines may render
// it.
//
//	t, err := chat.Open("model")
//	if err != nil {
//		return err
//	}
//	prompt, err := t.Render([]chat.Message{
//		{Role: "system", Content: "Be brief."},
//		{Role: "user", Content: "What is light?"},
//	}, chat.Options{AddGenerationPrompt: true})
//	tokens := tok.Encode(nil, prompt) // the template writes BOS itself
//
// A template is part of a model and is trusted no more than the model: it only
// reads its inputs, changes nothing, and ends with [ErrLimit] when it takes too
// long, recurses too deep or writes too much. Features of the language that this
// package lacks (inheritance, includes, recursive loops, call blocks, autoescape)
// are refused by name when the template is parsed, since a prompt that silently
// differs is worse than none.
//
// Values follow Python: text is indexed by code points, None prints as None,
// dictionaries keep their order, -7 // 2 is -4. Settings are Hugging Face's:
// trim_blocks, lstrip_blocks, loop controls, {% generation %}, raise_exception,
// strftime_now, a tojson that escapes nothing, and undefined names that are
// empty, but fail if they are used in other ways. Integers have 64 bits; a result
// that needs more is an error.
package chat
