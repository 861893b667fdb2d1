// Package platforms is the contract between caddy-svc and its adapters to messaging platforms: what an adapter declares
// ([Description]), what it does ([Platform]), how its failures are classified ([Error]), and the helpers that adapters
// share. It contains no adapter and nothing of Caddy. It is v0: vendors and production traffic will widen it.
//
// # Adapters
//
// An adapter is a package with a [Driver]. The driver describes the platform without doing anything: its channel types,
// the options of its block in the configuration, the fields of its credentials, its limits and its instructions for
// people. Forms, API, command line and documentation are made from that description. [Driver.New] makes the [Platform],
// which verifies and reads deliveries, sends replies and identifies accounts. What only some platforms can do are small
// interfaces of their own: [SignedDeliveries] or [ChannelSecrets] (every platform has exactly one of the two),
// [ChannelSigned], [Refresher], [Templater], [MediaSource], [Handshaker],
// [option.Checker]. A Caddy module of the namespace svc.platforms makes an adapter
// available; it needs nothing but the driver.
//
// The packages platforms/bot, platforms/social, platforms/localchat, platforms/marketa and platforms/marketb are the
// built-in adapters. Package platforms/platformtest checks any adapter against this contract.
//
// # What an adapter must hold
//
//   - Extract never panics and never fails for a JSON object: items of an unknown form are left out and don't affect
//     others. A refused delivery is repeated by most platforms for hours.
//   - Only what one customer wrote in a private conversation is [Text]. Bots, groups, echoes, receipts and edits never
//     are; otherwise an assistant could answer itself.
//   - One delivery may contain messages for several tenants. Each [Inbound] carries the external id of its own entry.
//   - Ids are bounded and never shortened or repaired. All strings are valid UTF-8 without NUL; texts and names are bounded.
//   - An [Error] contains no token, no text of a customer and no text of the platform.
//   - Send makes at most one request that can deliver the message. If no usable answer arrives, the failure is [Unknown].
//   - Calls end when their context does. An adapter keeps no state but idle connections.
//
// # What the product does
//
// It routes, queues, stores, retries, seals credentials (an adapter receives them opened), bounds every call by a deadline,
// recovers panics, and decides what is answered.
package platforms
