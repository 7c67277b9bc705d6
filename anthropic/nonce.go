package anthropic

import "regexp"

// nonce is the form of a block that Claude Code puts at the beginning of its system prompt, for billing. cc_version
// ends in a hash of the conversation's beginning, and cch, which not all versions send, is a hash that differs in each request.
//
// Source: sgl-project/sglang issue 21064, vllm-project/vllm pull request 36829; and what version 2.1.197 sends.
var nonce = regexp.MustCompile(`^x-anthropic-billing-header: cc_version=[^;\s]{1,64};(?: [a-z_]{1,32}=[^;\s]{0,64};){0,8}\s{0,8}$`)

// maxNonce is the length of the longest text that is tried.
const maxNonce = 512

// isNonce reports whether the text of a system block is one.
func isNonce(text string) bool { return len(text) <= maxNonce && nonce.MatchString(text) }
