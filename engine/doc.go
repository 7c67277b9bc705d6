// Package engine is the contract between the scheduler and a backend that computes:
// a [Batch] of rows goes in, a [Ticket] comes back at once and a [Result] later.
// It owns no code that runs a model and never decides what to run.
//
// The scheduler's side: one goroutine submits, tickets may be waited for
// anywhere. A backend's side: the promises below, all checked by package
// enginetest, which every backend passes.
//
//  1. FIFO. Batches run as if one after another in the order of submission, each
//     as Binds, then Swaps, Copies in order, Drops, Masks, then Rows. So a page that is freed
//     while batch N runs may be handed out in batch N+1.
//  2. Visibility. A row may read KV slots written by earlier rows of its batch.
//  3. Write exclusivity. Slots [Start, Start+n) are written by one row only.
//     Slots past a sequence's end hold garbage that no row reads.
//  4. Ownership. A Batch and its slices belong to the backend until the ticket
//     completes, a Result to the caller. Pages are never the backend's.
//  5. Deferred rows take the slot's last sampled token, which may still be
//     computing when they are submitted.
//  6. Errors. [ErrInvalid] and [ErrBusy] come from Submit and nothing ran;
//     RowOut.Err fails one row; an [Error] from a ticket is the device's end.
//  7. Cancellation is the scheduler's: it drops the row and ignores its output.
//  8. Stops are the scheduler's: a backend knows logits, not endings.
//  9. Moves of pages to and from the host are done by a [Mover]. They have numbers, and
//     a batch waits on the device for the moves that it names in After.
//  10. Tables. A slot keeps its page table: SlotBind.Pages begin it, Row.Pages append
//     to it, a PageSwap replaces one entry. [Tables] does that for a
//     backend in host memory, [Listed] for a caller that lists all pages of a row.
//  11. Masks. A row names the mask of its sample by number. A Batch sets the bits of a
//     number once, and the backend keeps them for all rows that name it, until a batch
//     drops the number or sets it again. [Masks] does that in host memory. [Submitted]
//     has the effects of earlier batches, for Batch.Validate.
//
// The promise that makes a cache provable, where Info.Deterministic is set: the
// logits after a token prefix are the same bits for every batch mix, chunking,
// page size, page placement, cache state, thread count and preemption.
package engine
