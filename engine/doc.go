// Package engine is the contract between the scheduler and a backend that computes:
// a [Batch] of rows goes in, a [Ticket] comes back at once and a [Result] later.
// It owns no code that runs a model and never decides what to run.
//
// The scheduler's side: one goroutine submits, tickets may be waited for
// anywhere. A backend's side: the promises below, all checked by package
// enginetest, which every backend passes.
//
//  1. FIFO. Batches run as if one after another in the order of submission. The parts
//     of a batch run in this order: Binds, Swaps, Copies by index, Drops, Masks, Rows. So a page that is freed
//     while batch N runs may be handed out in batch N+1.
//  2. Visibility. A row may read KV slots written by earlier rows of its batch.
//  3. Write exclusivity. Only one row of a batch writes the KV slots of a sequence's
//     positions [Start, Start+n). KV slots past a sequence's end hold garbage that no row reads:
//     among it the KV of drafts that were refused, which the sequence's next rows overwrite.
//  4. Ownership. A Batch and its slices belong to the backend until the ticket
//     completes, a Result to the caller. The scheduler alone decides which pages are free.
//  5. A deferred row runs the slot's last sampled token, which may still be
//     computing when the row is submitted.
//  6. Errors. After [ErrInvalid] or [ErrBusy] from Submit, nothing of the batch runs.
//     RowOut.Err fails one row. An [Error] from a ticket means that the device is lost.
//  7. A backend knows no cancellation: the scheduler submits no more rows of a
//     cancelled sequence, and ignores the output of rows already submitted.
//  8. A backend knows no stop conditions: the scheduler decides where an output ends.
//  9. A [Mover] moves pages to and from the host. Each move has a number, and the device
//     runs a batch only after the moves that the batch lists in After.
//  10. Tables. A slot keeps its page table: SlotBind.Pages begin it, Row.Pages append
//     to it, a PageSwap replaces one entry. [Tables] does that for a
//     backend in host memory, [Listed] for a caller that lists all pages of a row.
//  11. Masks. A row names the mask of its sample by number. A Batch sets the bits of a
//     number once, and the backend keeps them for all rows that name it, until a batch
//     drops the number or sets it again. [Masks] does that in host memory. [Submitted]
//     tracks the tables and masks after all submitted batches, for Batch.Validate.
//  12. Drafts. A row may carry guesses at its next tokens, up to Info.MaxDrafts. It gives the tokens,
//     log-probabilities and digests that rows without guesses would give one by one, so a wrong
//     guess costs time and changes nothing. See Row.Drafts.
//  13. Hidden states. A row may ask for the model's output before the head, at its last token or as a sum
//     over the sequence's positions, if Info.HiddenSize is not 0. See [Hidden].
//
// A backend that sets Info.Deterministic promises what makes a prefix cache testable: the
// logits and hidden states after a token prefix are the same bits for every batch mix, chunking,
// page size, page placement, cache state, thread count and preemption.
package engine
