package docs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// faults are the promises for each part and fault, in the order of docs/reliability.md. "500" stands for internal_error.
var faults = []row{
	{
		"SQLite, slow: A write that can't begin in time is refused with 500 and has not happened; reads go on, and more load than slow " +
			"commits can carry is refused early instead of slowing everybody. In tests commits are delayed.",
		"tests.TestStoreThatCannotWrite store.TestLockedFileIsBusy tests.TestOverload writer.TestOverload",
	},
	{
		"SQLite, gone: A process that is killed, at whatever point of a call, loses no write that was acknowledged and leaves the file sound.",
		"store.TestKilledProcessLosesNothing tests.TestKill tests.TestChaos",
	},
	{
		"SQLite, lying: A commit that ends in an I/O error counts as undecided until the books say whether it happened, and then holds " +
			"nothing. A file on a network file system is refused before anything is written to it. In tests every write of the process fails.",
		"tests.TestStoreWithoutRoom billing.TestVoidOfAnUnknownHold sqlite.TestNetworkFileSystemIsRefused sqlite.TestNetworkFileSystems",
	},
	{
		"SQLite, restarted: The file recovers by itself; what was under way is given back when its hold expires, and a resend under its " +
			"`Idempotency-Key` is charged once.",
		"tests.TestCrash tests.TestTerminateWithinGrace",
	},
	{
		"SQLite, full: Calls, deliveries and settlements get their 500 and nothing of them is half written; no provider is called, reads go " +
			"on, and the same process goes on when there is room. In tests a limit on the size of files stands for the full disk, or SQLite's own " +
			"limit.",
		"tests.TestStoreWithoutRoom store.TestFullDisk",
	},
	{
		"PostgreSQL, slow: Calls and deliveries are served, later, and nothing piles up; with commits of 1.2 s what exceeds the rate is " +
			"refused at once, every other outcome is known, and the service recovers when commits are quick again. A write that waits 3 s in vain " +
			"for a row which another node has locked is refused with 500 and `Retry-After`, and has not happened.",
		"tests.TestPostgresSlow store.TestSlowCommits store.TestLockedRowIsBusy tests.TestOverload writer.TestRecovery handlers.TestBusyStore",
	},
	{
		"PostgreSQL, gone: Every request gets its 500 within its deadline, webhooks with `Retry-After` so that the platform delivers again, " +
			"no provider is called for a hold that isn't stored, and all goes on without a restart when the server is back.",
		"tests.TestPostgresGone tests.TestPostgresHangs tests.TestPostgresPartition tests.TestPostgresForgotten tests.TestStoreIsGone " +
			"store.TestHangingServer writer.TestRecoveryFromAHang",
	},
	{
		"PostgreSQL, lying: A commit whose confirmation was lost is neither success nor failure: settlements, payments and deliveries are " +
			"asked again by their id and happen once, and a hold is given back.",
		"store.TestLostCommitsAreResolvedByID store.TestCommitWhoseAnswerIsLost tests.TestLostSettle tests.TestLostHold " +
			"tests.TestLostDelivery tests.TestLostCommitsLeaveNothingRunning gateway.TestUnknownHoldIsDecided billing.TestVoidWaitsForTheCommit " +
			"tests.TestPostgresResets",
	},
	{
		"PostgreSQL, restarted: The first request that meets a dead connection replaces all of them; nobody waits for a timeout. A server " +
			"that comes back read-only refuses each write and is used again when it takes writes. A failover to a synchronous standby loses " +
			"nothing that was acknowledged, and the store goes on with it by itself when its address names both servers; a standby that isn't " +
			"synchronous can lack the last commits ([scaling.md](scaling.md)).",
		"store.TestRestartedServer store.TestServerDropsAllConnections store.TestReadOnlyServer store.TestFailoverToASynchronousStandby",
	},
	{
		"PostgreSQL, full: What the server refuses for want of room or of connections is 500 and has not happened, and all goes on by itself " +
			"when there is some. In tests a trigger plays the full disk, with PostgreSQL's code for it.",
		"tests.TestStoreWithoutRoom tests.TestPostgresRefusesConnections",
	},
	{
		"Redis, slow: A request waits a moment at most and is then counted in this process's share of the limit; a Redis that stays slow is " +
			"left alone until it answers in the background. Clients that leave early don't count against it.",
		"limit.TestRedisHangs limit.TestClientThatLeavesIsNoFaultOfRedis tests.TestRedisFaults",
	},
	{
		"Redis, gone: Each process counts in its share of the limit; starting needs no Redis.",
		"tests.TestRedisFaults tests.TestRedisGoneAtStart limit.TestBreakerOpensWhenHalfOfTheLastTenFailed",
	},
	{
		"Redis, lying: A key that is no window is left alone and its organization counted locally; a read-only server and one that refuses " +
			"the password count as gone, and each is logged once, without the password.",
		"limit.TestRedisKeyOfAnotherKind limit.TestRedisIsReadOnly limit.TestRedisRefusesThePassword",
	},
	{
		"Redis, restarted: At most the counts of the current minute are lost; counting goes on there as soon as it is back, also after a " +
			"failover.",
		"tests.TestRedisRestarts tests.TestRedisEmptied limit.TestRedisSentinelFailover",
	},
	{"Redis, full: It counts as gone until it has room.", "limit.TestRedisIsFull"},
	{
		"Vendor, slow: Connecting, the first byte, each pause, a whole answer and the whole call have their limits, and beyond them " +
			"`provider_timeout`; a stream that trickles reaches the client piece by piece. Calls to a vendor that hangs leave room for those to " +
			"others.",
		"providers.TestTimers providers.TestConnectTimer tests.TestProviderTimeouts tests.TestStreamIsLive gateway.TestHangingVendor " +
			"worker.TestAHangingVendorTakesItsShare",
	},
	{
		"Vendor, gone: A connection that can't be made is tried once more, and then `provider_error`; a request that may have been read is " +
			"never sent again. A customer's message is tried for 24 hours with growing pauses, and answered by itself when the vendor is back.",
		"worker.TestFailedCalls worker.TestAnOutageEnds providers.TestRetriesAFailedConnectOnce providers.TestNeverResends " +
			"tests.TestProviderEndings",
	},
	{
		"Vendor, lying: Absurd or missing usage, or a missing part of it, is replaced by an estimate; broken JSON, cut streams, endless lines " +
			"and bad compression end in the contract's error, never in the vendor's words. A vendor that answers before it has read the request " +
			"gets no byte of another's.",
		"gateway.TestEndings tests.TestProviderEndings tests.TestDialects openai.TestStreamCutAnywhere providers.TestBrokenGzip " +
			"providers.TestGzipBomb providers.TestEndedCallReadsNoPrompt caddymodule.TestLargePromptAnsweredEarly",
	},
	{
		"Vendor, restarted: A kept connection that the vendor has closed never leads to a second call of the same request.",
		"providers.TestNeverResends providers.TestConnections caddymodule.TestLargePromptOnStaleConnection",
	},
	{
		"Vendor, full: Its 429, 503 and 529 become `provider_overloaded` with its own wait, within 1 to 60 s.",
		"tests.TestProviderEndings gateway.TestRetryAfter",
	},
	{
		"Platform, slow: A send has a deadline; when the request was written before it ended, the outcome is unknown, the message says so, " +
			"and it is not sent again.",
		"messaging.TestDeadlines messaging.TestBrokenAnswersAreUnknown",
	},
	{
		"Platform, gone: A send that found no connection is tried again at growing distances for 24 hours, then given up, and failed on the " +
			"message and the conversation.",
		"messaging.TestNoConnectionIsRetried worker.TestSendingIsGivenUpInTheEnd tests.TestPlatformFaults",
	},
	{
		"Platform, lying: A repeated delivery is one message, a wrong signature 401, an expired token renewed once or the channel marked for " +
			"new credentials, for which its messages wait; an echo of ours or an automatic reply is no person's; a late word that a message " +
			"wasn't delivered is believed.",
		"inbox.TestRepeatedDeliveryIsOneMessage tests.TestWebhookSignatures tests.TestTokens tests.TestFailedDelivery " +
			"worker.TestPartsWaitForTheirChannel inbox.TestEchoesOfOurParts inbox.TestAutomaticReplies",
	},
	{
		"Platform, restarted: A pooled connection that the platform closes with our request in hand makes the outcome unknown, never a second " +
			"send.",
		"messaging.TestReusedConnectionThatBreaksIsUnknown tests.TestWorkerKills",
	},
	{
		"Platform, full: Its 429 postpones what the channel sends for as long as it asks for, in all workers; a message is tried for 24 " +
			"hours.",
		"worker.TestThePlatformsWishIsHonoured worker.TestWorkersKeepThePace messaging.TestRetryAfterIsBounded",
	},
	{
		"Worker, slow: The webhook never waits for the model, a lease is renewed while its work runs, one organization takes half of the " +
			"places at most, and a place that gets free is for the organization with the fewest leases in all workers, however much waits of " +
			"others.",
		"tests.TestSlowModel worker.TestLeaseIsRenewedWhileTheWorkRuns worker.TestNoOrganizationTakesMoreThanHalf worker.TestAllPlacesAreUsed " +
			"inbox.TestPlacesAreSharedOut inbox.TestSmallOrganizationIsServedFirst inbox.TestLeaseMachine tests.TestFairness",
	},
	{
		"Worker, gone: Another worker takes over when the lease has lapsed; every customer is answered once, for one charge, and a part whose " +
			"sending is unclear is flagged. A part for which no platform was called is never flagged, however unclear its commit was. A draft is " +
			"proposed once, and a file can be had when all of it is stored. Where no worker comes, people are told of each customer who waits too " +
			"long.",
		"worker.TestDeathAtEveryStep inbox.TestWhichCallIsPaid gateway.TestTurnThatDoesNotEnd worker.TestAnUnconfirmedAnswerIsStoredAgain " +
			"worker.TestDoubtBeforeThePlatformIsCalled worker.TestWhatHappenedOutsideIsInsistedOn worker.TestWhatADeadWorkerWasSending " +
			"tests.TestWorkerKills tests.TestWorkerDies tests.TestWorkerLosesPostgres inbox.TestWaitsInTheQueueAreTold",
	},
	{
		"Worker, lying: A worker that wakes up with a lost lease sends and charges nothing more: the store refuses each of its steps.",
		"inbox.TestLateWorkerIsFenced inbox.TestOpenLeasedAfterACrashReadsAgain worker.TestAFrozenWorkerIsFencedOff " +
			"tests.TestWorkerIsSuspended tests.TestWorkerIsOvertaken",
	},
	{
		"Worker, restarted: It finishes what it has begun within `grace_period`, or gives it back for others.",
		"tests.TestWorkerStops worker.TestStopAfterTheGrace",
	},
	{
		"Worker, full: When all places are taken, messages wait in the store and none is lost.",
		"worker.TestAllPlacesAreUsed worker.TestATurnWaitsForItsPlace tests.TestNodesShareTheQueue",
	},
	{
		"Node, slow: A saturated node leaves the others on the same store their turns, and so does a stopped one: with SQLite others write " +
			"without their turn, and PostgreSQL ends a transaction whose node says nothing for 2 s. The node that goes on has lost that " +
			"transaction, and charges nothing for it.",
		"tests.TestTwoGatewaysMakeProgress store.TestDeliveriesBesideACommit store.TestStoppedProcessHoldsNobody " +
			"tests.TestNodeIsStoppedInATransaction",
	},
	{
		"Node, gone: No acknowledged charge or message is lost, holds of calls that were cut expire, and a resend under its key is charged " +
			"once. What a person does in a conversation is done wholly or not at all, and once if they do it again.",
		"tests.TestKill tests.TestCrash tests.TestCaddyDiesOfPeople tests.TestChaos",
	},
	{
		"Node, lying: A node with an older configuration charges a call at the prices it began with, and no node remembers a right that was " +
			"taken away.",
		"tests.TestReloadDuringStreams tests.TestNodesRevokeStrictly",
	},
	{
		"Node, restarted: Behind a balancer no call fails while nodes are restarted one by one, open streams end whole, and what outlives the " +
			"grace period is cut and settled. A newer build goes on with what an older one has left in the store.",
		"tests.TestRollingRestart tests.TestTerminateWithinGrace tests.TestTerminateBeyondGrace tests.TestReadinessFailsDuringShutdownDelay " +
			"tests.TestUpgrade tests.TestServersRefuseOtherStores",
	},
	{
		"Node, full: Bodies, streams, calls, counts and queues are bounded; more is refused with 429, 503 or 500 and a wait, for those who " +
			"take most first. A process without free file descriptors goes on with the connections it has, refuses what needs another, and " +
			"accepts clients again as soon as it can.",
		"tests.TestAbuse tests.TestByteBudget tests.TestStreamLimit tests.TestSlowReader tests.TestManyHangUps store.TestQueueIsBounded " +
			"gateway.TestLateCallsAreBounded tests.TestNoFreeDescriptors",
	},
	{
		"Disk, slow: As for the stores. A disk can't be slowed on a test machine, so that delayed commits stand for it.",
		"tests.TestOverload store.TestSlowCommits",
	},
	{
		"Disk, gone: A disk that turns read-only refuses writes, which are 500, and reads go on; when it takes writes again, so does the " +
			"service. A disk can't be made read-only while files on it are open for writing, so that a limit on the size of files stands for it: " +
			"SQLite makes the same I/O error of both. Nothing is promised for a store whose file is deleted under a running process.",
		"tests.TestStoreWithoutRoom",
	},
	{
		"Disk, lying: A damaged archive is refused as a whole, a sealed value that was changed doesn't open, and `caddy svc doctor` finds " +
			"books that don't add up.",
		"archive.TestDamagedArchives vault.TestEveryChangedByteIsNoticed billing.TestCheckFinds tests.TestDoctorFindsWhatIsWrong",
	},
	{
		"Disk, restarted: A power failure keeps what was committed, because each commit is synced. The tests show the settings on the " +
			"connections that write; a power failure can't be produced on a test machine, and a killed process proves nothing about it. A backup " +
			"made under load restores to the books of its moment.",
		"store.TestCommitsAreSynced store.TestCommitsAreSyncedByPostgres tests.TestBackupAndRestore",
	},
	{
		"Disk, full: See the stores. When only the access log has no room, requests succeed, and are logged again when there is some.",
		"tests.TestStoreWithoutRoom tests.TestAccessLogWithoutRoom",
	},
	{
		"Clock, slow: A clock that falls behind or steps back opens no window of the rate limit early.",
		"limit.TestMemoryClockThatStepsBackOpensNoWindow limit.TestRedisClockThatStepsBack",
	},
	{
		"Clock, lying: Holds, keys, sessions, leases and windows count by the store's clock (or Redis'), so that nodes which disagree about " +
			"the time agree about them. Messages of a conversation keep their order when the clock is set back by up to a day, so no answered " +
			"question is asked again. A wallet's statement is ordered by its numbers, whatever clocks show.",
		"inbox.TestClockThatStepsBack tests.TestNodesWithDifferentClocks billing.TestClocksDontOrderTheStatement tests.TestNodesShareWallets " +
			"billing.TestHoldIsBoundedByTheFreeBalance identity.TestAuthenticateTellsTheStatesOfAKey identity.TestSessionsEnd inbox.TestLeaseLife " +
			"tests.TestNodesShareWindows inbox.TestPartAfterAWrongClock",
	},
	{
		"Clock, restarted: When the store's clock jumps ahead, holds and leases lapse at once: a settlement that comes too late takes what is " +
			"free, and nobody is charged twice.",
		"billing.TestSettleTooLate billing.TestSettleAfterExpiry billing.TestIdempotencyRows",
	},
	{
		"All, a week: A week with an outage, a token that ends, a lost account, a clock that steps or a person who takes over every few " +
			"hours, and tenants of very different size. Each question that was accepted ends with one answer, with a person, or with a reason " +
			"that people were told; platforms get no message too fast, the books are in order, and the smallest tenant waits at most three times " +
			"as long as alone.",
		"week.TestWeek",
	},
	{
		"All, a year: A year of calls by two processes with refunds, voids, late settlements, new prices, full kept answers, killed " +
			"processes, retention and a clock that steps by an hour. The doctor finds nothing, whatever part of the books it reads. The months of " +
			"a statement are the statement, the days of `spend` add up to it, and both are what callers were told.",
		"billing.TestYear",
	},
}

// TestFaults: every part meets every fault, and each promise is shown by tests. A clock is never gone or full.
func TestFaults(t *testing.T) {
	t.Parallel()
	requireShown(t, faults)
	var named, wanted []string
	for _, fault := range faults {
		name, _, _ := strings.Cut(fault.promise, ":")
		named = append(named, name)
	}
	page := read(t, "reliability.md")
	for _, part := range []string{"SQLite", "PostgreSQL", "Redis", "Vendor", "Platform", "Worker", "Node", "Disk", "Clock"} {
		require.Contains(t, page, "**"+part+".**")
		for _, fault := range []string{"slow", "gone", "lying", "restarted", "full"} {
			if part != "Clock" || fault != "gone" && fault != "full" {
				wanted = append(wanted, part+", "+fault)
			}
		}
	}
	require.Equal(t, append(wanted, "All, a week", "All, a year"), named)
}
