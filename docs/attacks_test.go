package docs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// attacks are what attackers meet. The numbers are stable names; comments in the code and its tests use them.
var attacks = []row{
	{
		"S1, form of API keys: A key has a prefix for its environment, 256 random bits and a checksum, so that a mistyped one never reaches " +
			"the store. It is shown once and kept as SHA-256.",
		"identity.TestNewKeyParses identity.TestParseKeyRefuses identity.FuzzParseKey identity.TestMalformedKeysAreNotLookedUp " +
			"identity.TestCreateKey dashboard.TestKeyIsShownOnce",
	},
	{
		"S2, what a wrong key reveals: Unknown, malformed and expired keys get the same code; only the holder of the whole key learns that it " +
			"was revoked.",
		"identity.TestAuthenticateTellsTheStatesOfAKey handlers.TestAuthRefusals",
	},
	{
		"S3, revocation: The next request is refused, on every node: keys, scopes, suspension and plan are read each time, or proved " +
			"unchanged.",
		"sqlite.TestGenerations store.TestStatementsUseIndexes tests.TestNodesRevokeStrictly tests.TestRevocationIsImmediate " +
			"identity.TestChangesHoldAtTheNextRequestOfAnotherProcess",
	},
	{
		"S4, two credentials in one request: `X-Api-Key` wins over `Authorization`; a header that comes twice is refused.",
		"identity.TestCredential",
	},
	{
		"S5, form of the key headers: `Bearer` in any case and one space; whatever else stands there is no key or a malformed one, of " +
			"whatever length.",
		"identity.TestCredential identity.TestParseKeyRefuses",
	},
	{
		"S6, guessing: Failed logins are bounded per person and address, per person, and per address (of IPv6 its /56), over all nodes; a " +
			"device that is known stays able to log in. API keys need no such bound: they can't be guessed.",
		"identity.TestThrottle identity.TestThrottleOnSeveralNodes identity.TestKnownDevice api.TestThrottledSignIn api.TestClientAddress",
	},
	{
		"S7, ids of other organizations: Every route with every id refuses another organization's, without data and without effect.",
		"api.TestRightsOfEveryRoute api.TestAgentOfAChannel inbox.TestConversationLists inbox.TestHandOverAndBack media.TestFilesAreStored " +
			"media.TestSentFiles store.TestOwnerOf",
	},
	{
		"S8, roles and scopes: Every route lets in exactly the roles and scopes that it names; a key makes no key that may do more than " +
			"itself, and a test key changes nothing live, reads no conversation and calls no model that is closed to it: an operation refuses " +
			"test keys unless it is registered for them.",
		"api.TestRightsOfEveryRoute api.TestMatrixOfRights api.TestKeysMakeKeysWithinTheirScopes api.TestKeysOfKeys " +
			"api.TestTestKeysChangeNothingLive api.TestTestKeysRevokeTestKeys v1.TestModelsForTestKeys gateway.TestLiveOnlyModel",
	},
	{
		"S9, members that aren't the client's to set: Ids, owners, states and times in a body are ignored.",
		"api.TestUnknownMembersAreIgnored",
	},
	{
		"S10, size and pace of bodies: 32 MiB on `/v1`, 8 MiB on webhooks; together, per organization and per address a part of `limits " +
			"buffered_bytes`; what arrives too slowly is ended.",
		"handlers.TestReadBodyRefusesMoreThanTheLimit v1.TestDecodeChatRefusesBodiesBeyondTheLimit handlers.TestIdleBodiesTakeNothing " +
			"handlers.TestOneAccountLeavesRoomForOthers handlers.TestSharesAreApart handlers.TestBodyPace handlers.TestSlowBodyOverTheWire " +
			"api.TestAPIBodiesAreCharged webhook.TestBotDeliveryIsAdmittedBeforeItsBody tests.TestByteBudget tests.TestWebhookSizes " +
			"tests.TestAbuse",
	},
	{
		"S11, compression: A request with a `Content-Encoding` is refused; a vendor's answer is bounded after it was unpacked.",
		"handlers.TestReadBodyContentEncoding providers.TestGzipBomb providers.TestCappedReader",
	},
	{
		"S12, hostile JSON: Nesting, counts, repeated names, bad UTF-8 and numbers out of range are refused, at a cost in proportion to the " +
			"body; what the vendor receives is written anew from what was validated.",
		"v1.TestDecodeChatRefusesBadJSON v1.TestDecodeChatRefusesRepeatedNames v1.TestDecodeChatDepth v1.TestDecodeChatCounts " +
			"v1.TestDecodeChatNameBound v1.TestDecodeChatFields v1.TestDecodeChatIsLinear v1.TestDecodersAreFrugal api.TestDecodersAreFrugal " +
			"widget.TestDecodersAreFrugal webhook.TestDecodersAreFrugal dashboard.TestDecodersAreFrugal dashboard.TestFormsHaveFewFields " +
			"handlers.TestDecodingSlots v1.TestChatIsDecodedInTurn api.TestAPIBodiesAreDecodedInTurn webhook.TestDeliveriesAreDecodedInTurn " +
			"dashboard.TestBodiesHaveABound v1.FuzzDecodeChat api.TestBodyRulesOfEveryRoute endpoint.FuzzAPIBody tests.TestBadRequests " +
			"tests.TestOnlyTheContractGoesUpstream",
	},
	{
		"S13, length of a text: The limit of 200,000 counts code points, however they are written.",
		"v1.TestDecodeChatContentLengthIsInCodePoints",
	},
	{
		"S14, request smuggling: A request that could be read in two ways is refused, or read in one and written anew; nothing behind it and " +
			"none of its headers reaches the vendor.",
		"tests.TestSmuggledRequests",
	},
	{
		"S15, spellings of paths: No spelling gets around a route's credential.",
		"tests.TestOddPaths handlers.TestNotFoundEverywhereElse",
	},
	{
		"S16, methods: A method that a path doesn't have is 404 with the error body.",
		"tests.TestEveryErrorHasTheContract api.TestUnknownAddressesOfTheAPI v1.TestChatNeedsPostAndPrincipal " +
			"webhook.TestWebhookOtherAddresses tests.TestWebhookPaths",
	},
	{
		"S17, request ids and log lines: Ids are ours, and a client's is ignored; a log line is bounded, shows no headers, and stays " +
			"one line whatever the request has.",
		"tests.TestRequestID handlers.TestRequestIDIsMadeOnceAndIgnoresTheClient caddymodule.TestLogForgesNoLine " +
			"caddymodule.TestLogKeepsPaths",
	},
	{
		"S18, requests that we can be made to send: Addresses of vendors and platforms are the operator's alone, redirects are not followed, " +
			"and credentials that could change a path are refused. Of the addresses that requests and deliveries name only those of event " +
			"endpoints and of files are asked, and only public ones (S55).",
		"openapi.TestNoRequestNamesAnAddress providers.TestRedirectIsNotFollowed social.TestContract " +
			"messaging.TestRefreshStaysWithTheConfiguredPlatform messaging.TestCheckCredentials media.TestBounds media.TestRedirects",
	},
	{
		"S19, foreign content in streams: Every event is written anew: a text that looks like an event stays text, and members that we don't " +
			"know are dropped.",
		"tests.TestDialects openai.TestReadChunkDialects openai.FuzzReadChunk openai.FuzzStream providers.FuzzSSEReader providers.FuzzLines",
	},
	{
		"S20, vendors' error texts: They reach no client, and the log with keys masked.",
		"tests.TestProviderEndings providers.TestLogLine providers.TestWordsAreMasked providers.TestErrorText " +
			"handlers.TestWriteErrorHidesCauses",
	},
	{
		"S21, secrets in places where they don't belong: Planted keys, tokens and texts are in no log, metric, served configuration, plain " +
			"column, profile or trace of a panic, also when a client sends a key under a wrong name.",
		"tests.TestPlantedSecrets tests.TestPlantedMessageSecrets webhook.TestWebhookLogsNothingPrivate caddymodule.TestLogShowsNoSecret " +
			"caddymodule.TestLogFormatIsTheSame caddymodule.TestConfigurationHoldsNoSecret caddymodule.TestTraceOfAPanicShowsNoSecret",
	},
	{
		"S22, the admin interface: The example configuration has it on a Unix socket and keeps no copy of the configuration.",
		"caddymodule.TestExampleKeepsTheAdminInterfaceToItself",
	},
	{
		"S23, encryption of what is stored: A sealed value opens in its own row only, a changed one not at all; the master key can be " +
			"replaced, a value whose key is missing says so, and secrets that are short or that others on the machine can read are warned of.",
		"vault.TestSwappedRowsDoNotOpen vault.TestEveryChangedByteIsNoticed vault.TestRotation vault.TestProbes vault.FuzzOpen " +
			"identity.TestSwappedProviderKeysDoNotOpen tests.TestRekey caddymodule.TestSecretWarnings",
	},
	{
		"S24, signatures of deliveries: Checked over the bytes as they came, with exact prefixes and every digit; an empty secret signs " +
			"nothing. Comparing takes the same time whatever differs; the test reads the code, since a clock can't show it.",
		"verify.TestHashedSignatures verify.TestPrefixIsNeeded verify.TestNothingConfigured verify.TestMarketsDoNotMix " +
			"verify.TestLocalChatTimestamp verify.TestLocalChatUnhashable verify.TestSecretsAreComparedInConstantTime verify.FuzzHashedSignatures " +
			"webhook.TestWebhookWrongSignatures tests.TestWebhookSignatures",
	},
	{
		"S25, deliveries that are sent again: A message counts once, also after its answer and for a week after its conversation was deleted, " +
			"and a delivery is good at its own address only. Later than that, or after the retention of its organization, it would be a new " +
			"message.",
		"inbox.TestRepeatedDeliveryIsOneMessage inbox.TestRepeatedDeliveryAfterDeletion inbox.TestSweepRetention " +
			"webhook.TestWebhookDeliveriesElsewhere tests.TestWebhookSecretsOfOthers tests.TestFiftyDeliveriesAtOnce",
	},
	{
		"S26, deliveries for nobody: They are acknowledged and write nothing; a bot's delivery that isn't admitted is not even kept in " +
			"memory. Channels have no rate of their own: a platform's address is that of all its customers.",
		"webhook.TestWebhookWritesNothingForStrangers webhook.TestWebhookWithoutAChannel webhook.TestBotDeliveryIsAdmittedBeforeItsBody " +
			"tests.TestWebhookSecretsOfOthers",
	},
	{
		"S27, texts of people: In no log at level info or above, sealed in the store, deleted with the conversation or when the retention of " +
			"the organization ends. At level debug a vendor's own words are logged.",
		"tests.TestPlantedSecrets tests.TestPlantedMessageSecrets inbox.TestTextsAreSealed inbox.TestDeleteConversation " +
			"inbox.TestSweepRetention",
	},
	{
		"S28, an `Idempotency-Key` of others: It counts within its organization and environment.",
		"tests.TestKeysOfOthers billing.TestIdempotencyRows",
	},
	{
		"S29, login sessions: A random id, hashed in the store, in a `__Host-` cookie; it ends after 12 idle hours or 7 days, with a change " +
			"of role or password, and on demand.",
		"api.TestSignInAndOut api.TestPlainHTTP api.TestOwnPasswordAndSessions identity.TestSessionsEnd " +
			"identity.TestNoSecretOfASessionIsStored identity.TestSessionsOfChangedUsers",
	},
	{
		"S30, passwords: argon2id at 19 MiB, a few at a time, made anew when the cost changes; an unknown person, one without a password and " +
			"a wrong password look alike.",
		"identity.TestPasswordHash identity.TestPasswordTurns identity.TestStaleHash identity.TestPasswordsAreHashedAnew " +
			"identity.TestNobodyHasNoPassword identity.TestUnknownUsersCostASum identity.TestWrongPasswordsAreAllAlike",
	},
	{
		"S31, forms that other sites send: Refused before they are read, on every route that a session opens.",
		"dashboard.TestForeignOrigin api.TestRightsOfEveryRoute api.TestPublicRoutes",
	},
	{
		"S32, the web widget on foreign pages: Sessions are for the channel's origins, tokens for its visitors; rates per visitor, address " +
			"and channel, and a spending limit that is there also when nobody set one; the visitors of an organization read one conversation at a " +
			"time. An origin is no credential: programs can claim any.",
		"widget.TestSessionOrigins widget.TestAllowedOrigins widget.TestCleanOrigins widget.FuzzOrigins widget.TestVisitorTokens " +
			"widget.TestExpiredToken widget.TestWidgetRates widget.TestOneVisitorLeavesRoom widget.TestOneVisitorFromManyAddresses " +
			"widget.TestManyVisitorsOfOneAddress widget.TestDailySpend widget.TestDailySpendByDefault store.TestChannelSpendIsBounded " +
			"widget.TestVisitorsReadInTurn",
	},
	{
		"S33, scripts in our pages: Nothing inline, nothing from elsewhere, and the widget is framed by the pages of its channel only; what " +
			"customers write is shown as text.",
		"dashboard.TestEveryPage dashboard.TestCustomersTextIsEscaped widget.TestWidgetPage openapi.TestDocsPage",
	},
	{
		"S34, what we are built from: Module files are tidy and downloads are what go.sum says; linters search for known mistakes, `make " +
			"vuln` asks the public databases. The programs of a release are the same bytes whoever builds them and where, and so are their " +
			"packages; each has a list of parts (SBOM). Checksums are made, signatures aren't.",
		"scripts/modules.sh scripts/lint.sh scripts/vuln.sh scripts/dist.sh pack.TestPackagesAreReproducible pack.TestSBOM",
	},
	{
		"S35, confinement: The systemd units must pass systemd's own verdict on their exposure; both programs report to the service manager " +
			"and read secrets from its folder. No image is built. That the programs run inside the units' sandbox can't be shown where systemd " +
			"isn't the first process, as on a test machine in a container.",
		"scripts/units.sh tests.TestServiceManager",
	},
	{"S36, the security policy: What it names exists.", "docs.TestSecurityPolicy"},
	{
		"S37, operators' interfaces: Metrics name no key, and organizations only where ten wait longest for a worker; profiles are on the " +
			"admin interface, which is a Unix socket.",
		"caddymodule.TestLabelsNameNoTenant tests.TestMetrics tests.TestPlantedSecrets inbox.TestLags " +
			"caddymodule.TestExampleKeepsTheAdminInterfaceToItself",
	},
	{
		"S38, what one customer can take: Running calls, streams, counts of long prompts and calls without a client are bounded for each " +
			"organization, and a widget's spending per day. Outside of the widget the wallet is the only limit of spending. Prompts are counted " +
			"where nobody else can tell in time, no character of them for nothing, in time linear in the text.",
		"gateway.TestWhenPromptsAreCounted gateway.TestUncountedPromptIsCovered gateway.TestReportOfAnUncountedPrompt tokens.TestSplit " +
			"tokens.TestEveryByteCounts gateway.TestCallLimit tests.TestStreamLimit v1.TestStreamsLimitEachOrganization " +
			"dispatch.TestOwnersTakeTurns dispatch.TestOneOwnerLeavesPlaces dispatch.TestLineIsBounded " +
			"gateway.TestCountsOfAnOrganizationAreBounded gateway.TestHangUpsAreBounded tests.TestManyHangUps widget.TestDailySpend",
	},
	{
		"S39, what vendors report, and clients who don't wait for it: Size, form and numbers of an answer are checked before they count. A " +
			"text is never free because the vendor doesn't count it, nor are hidden tokens because the client leaves before they are reported.",
		"gateway.TestEndings gateway.TestUsageOfAnEmptyAnswer gateway.TestTableOfEndings gateway.TestHangingUpInTheMiddle " +
			"tests.TestHangUpOnHiddenTokens tests.TestProviderEndings providers.TestGzipBomb openai.FuzzReadChunk",
	},
	{
		"S40, panics: The client gets the error body, or the end of the connection when the answer had begun; nothing stays held, and nothing " +
			"else ends.",
		"caddymodule.TestPanicIsAnswered gateway.TestPanicOfAnAdapter worker.TestAPanicEndsOnlyItsConversation",
	},
	{
		"S41, texts that a model repeats for a customer: An answer costs time and memory in proportion to its length, becomes at most 20 " +
			"messages, and can end at most one worker by its form.",
		"worker.TestWorstAnswer worker.TestAnswerAfterAWorkersDeath markup.TestRenderBounds markup.TestRenderWorst markup.FuzzRender " +
			"messaging.TestLongestReply messaging.TestHugeReply tests.TestAnswerOfAKilledWorker",
	},
	{
		"S42, documents that keep us busy: Cutting takes time linear in the document. One document of an organization is read at a time; it " +
			"gives way to others every few KB, and ends with its client or after 5 s.",
		"segment.TestHostileTexts segment.TestSentencesAreThoseOfTheStandard knowledge.TestDocumentsTakeTurns " +
			"knowledge.TestOneDocumentOfAnOrganizationIsRead knowledge.TestReadingEnds api.TestBusyKnowledge",
	},
	{
		"S43, searches that keep us busy: An organization's requests search twice at a time; more wait, for 2 s at most, or get 429. Workers " +
			"search beside them.",
		"knowledge.TestSearchesTakeTurns api.TestBusyKnowledge",
	},
	{
		"S44, guesses that keep the hashing of passwords busy: Addresses take turns; known browsers, links and sessions have a place of their " +
			"own. Who waits for 5 s, or finds the line full, gets 429, and no attempt is used up.",
		"identity.TestPasswordTurns identity.TestOneAddressHasOnePlace identity.TestLineForPasswords identity.TestPasswordsShareProcessors " +
			"identity.TestBusyIsNoFailure identity.TestKnownDevice identity.TestKeptTurns handlers.TestBusySignIn",
	},
	{
		"S45, answers that nobody reads: Whole answers and pages are charged until they are read, like bodies, and kept ones before they are " +
			"read from the store; beyond it their owner is refused, before a change is made or a call is paid, and nobody else. A write without " +
			"progress ends its connection after 10 s.",
		"handlers.TestUnreadAnswersEndAndAreCharged handlers.TestUnreadStreamsEndAndAreCharged handlers.TestUnreadErrorsEnd " +
			"handlers.TestStalledConnectionsEnd caddymodule.TestHangUp caddymodule.TestRequestsKnowTheirConnection " +
			"handlers.TestSlowReadersGetTheWholeAnswer handlers.TestPausesOfABodyInPieces handlers.TestRoomForWhatMustBeAnswered " +
			"api.TestAnswersAreCharged v1.TestUnreadCompletionsAreCharged gateway.TestRoomForTheAnswer api.TestDownloadsAreCharged " +
			"dashboard.TestPagesAreCharged tests.TestAbuse billing.TestIdempotencyRows",
	},
	{
		"S46, large lists: A page of a list ends at 1 MiB, and lists of agents have no instructions, so that nobody locks others out of them.",
		"endpoint.TestPagesEndAtTheirBytes api.TestListsOfAgentsHaveNoInstructions store.TestAgentPages inbox.TestPagesOfLongMessages " +
			"dashboard.TestPagesOfManyLongInstructions",
	},
	{
		"S47, connections that send half of their headers: The example configurations end them after 10 s; how many an address may have is " +
			"for the packet filter, as docs/operating.md shows.",
		"caddymodule.TestExamplesEndSlowHeaders",
	},
	{
		"S48, claims of an external id: A channel that nobody has confirmed changes no answer to a delivery: its secret proves nothing and " +
			"takes nothing from what the operator's secret proves. It gives way when the platform or the operator confirms the id for another " +
			"organization, and says so.",
		"webhook.TestPendingClaimsHaveNoSay store.TestTakeOver api.TestProvenOwnerTakesOverPendingClaim " +
			"command.TestChannelCreateWinsOverClaims",
	},
	{
		"S49, deliveries that a tenant signs: A delivery is compared with few secrets, whatever channels it is for. One that only a channel's " +
			"own secret proves has at most 1,000 messages. A long one is stored 100 at a time, one of an organization at a time, so that others' " +
			"deliveries wait for few of its messages; one that breaks off is repeated, and merged.",
		"webhook.TestLongDeliveriesOfTenants webhook.TestLongDeliveriesTakeTurns webhook.TestLongDeliveriesGiveWay " +
			"webhook.TestALongDeliveryThatBreaksOff webhook.TestFewSecretsForADelivery tests.TestAbuse",
	},
	{
		"S50, questions to platforms in the operator's name: A tenant has platforms asked whose account credentials belong to ten times a " +
			"minute, once for the same ones and once at a time for a channel, and for 60 pages of templates.",
		"api.TestPlatformsAreAskedRarely api.TestOneQuestionAtATime api.TestTemplatesAreReadRarely",
	},
	{
		"S51, guessing the secret of a channel: A secret of a channel that proves its deliveries, has at least 16 characters. Short ones of " +
			"the operator are warned of (S23).",
		"api.TestChannelRefusals",
	},
	{
		"S52, a flood of requests to the organization API: The requests of an organization's keys, of one person and of all its people count " +
			"in windows of their own, and the playground in that of `/v1`; a person who works in the dashboard doesn't meet the bounds. Four " +
			"requests of an organization run at a time, so that the store's readers are there for others.",
		"endpoint.TestWindowsOfTheAPI endpoint.TestOperationsTakeTurns endpoint.TestOperationsGiveUpWaiting endpoint.TestStreamsHoldNoTurn " +
			"api.TestOneKeyCanNotFloodTheAPI endpoint.TestModelCallsCountWithThoseOfV1 api.TestPlaygroundCountsWithV1 " +
			"dashboard.TestPeopleStayBelowTheBoundsOfTheAPI",
	},
	{
		"S53, filling the disk, and asking others through us: An organization has at most so many agents, knowledge bases, members, keys, " +
			"documents and event endpoints, exactly, whatever is created at once on however many nodes; one test event goes out a second.",
		"store.TestMostRowsOfAnOrganization api.TestMostOfEveryResource store.TestMaxDocuments store.TestChannelLimit " +
			"store.TestOneTestEventASecond tests.TestAbuse",
	},
	{
		"S54, an account under somebody else's address: An organization that opens its own invitation of an address keeps its owner from no " +
			"account elsewhere and gets into none. Users of one address share a salt, so that a sign-in costs one hash whatever their number.",
		"identity.TestAnAddressIsNobodysAlone identity.TestOneSaltOfAnAddress identity.TestOneSumForAllOfAnAddress " +
			"api.TestSignInToOneOfSeveralOrganizations",
	},
	{
		"S55, a tenant who asks for the operator's network: Event endpoints are called at public addresses and ports that aren't a well-known " +
			"service's, decided when the connection is made; a private address has the outcome of a name that doesn't exist, also that of a file.",
		"egress.TestPublicAddresses egress.TestCheck egress.TestPrivateAddressesAreRefusedWhenConnecting egress.TestRebinding " +
			"events.TestPrivateAddressesGetNothing media.TestPrivateAddressesAreAsNamesOfNothing",
	},
	{
		"S56, names that turn the text around them: Names have no controls of the direction of text; customers' names are shown without them, " +
			"and by themselves.",
		"identity.TestCleanName dashboard.TestCustomersNamesTurnNothing",
	},
	{
		"S57, a customer who writes while the assistant is silent: A text is open until something of the business that was really sent is " +
			"younger. The end of a pause and a hand-back answer all open texts in one reply; what a person has answered isn't answered again. A " +
			"late report of a person's message answers only what is older. What fails to be sent while the assistant is silent isn't tried again. " +
			"A worker that dies during a pause is followed at once.",
		"inbox.TestHandBackAnswersWhatIsOpen inbox.TestHandBackAnswersNothingTwice inbox.TestHandOverDuringASend inbox.TestEchoDuringASend " +
			"inbox.TestPauseDelaysNoTakeover inbox.TestAnswersThatWereTakenBack inbox.TestHandBackOfOldTexts inbox.TestPauseKeepsTextsOpen " +
			"inbox.TestPauseEnds inbox.TestEchoesAnswerWhatIsOlder inbox.TestEchoesInOneDelivery inbox.TestLastWords inbox.TestMachine " +
			"worker.TestOpenTextsAreAnswered",
	},
	{
		"S58, a platform that is down, or says late that a message failed: The customer counts as unanswered until a part is sent. After 15 " +
			"minutes, for no pause that the platform asked for, people are told. A late report keeps its attention, and drops no question that " +
			"has come since.",
		"inbox.TestOutagesAreShown inbox.TestASentMessageHidesNoFailedOne inbox.TestLateBlocks inbox.TestBlocked " +
			"inbox.TestBlockedWhileTheCustomerWrites",
	},
	{
		"S59, old messages that are taken back one by one: Each deletes the stored requests that have it. A running call ends only if it " +
			"answers the message, so that a question is charged once.",
		"inbox.TestTakenBackBesideATurn inbox.TestRunningTurnInOneBatch inbox.TestWithdrawnBeforeTheAnswer worker.TestTakenBackBesideACall",
	},
	{
		"S60, a request for erasure that comes again: It deletes what is older than the request; a customer who has come back since, and the " +
			"answers to them, stay. What was deleted doesn't come back with a repeated delivery.",
		"inbox.TestErasureWantedOfACustomerWhoCameBack inbox.TestErasureWantedLate inbox.TestErasureOfPersonsMessages",
	},
	{
		"S61, a business's own message that doesn't say who wrote it: Once a customer has written to the business, such a message is never " +
			"answered. Before that nothing tells it from a customer's.",
		"inbox.TestUnsureMessages inbox.TestBusinessesAreLearned inbox.TestCustomersTakenForBusinesses",
	},
	{
		"S62, two ids of one customer: Messages and echoes that name a customer by either id are one conversation from when both were named " +
			"together. Ids count within their channel, and are exported and erased with the customer.",
		"inbox.TestCustomerWithTwoIDs inbox.TestAliasesOfOthers",
	},
	{
		"S63, a rotation of the master key that comes too early: `caddy svc rekey` changes nothing as long as a server or worker runs without " +
			"the new key, and names it. The steps of the rotation cost no call and no message.",
		"tests.TestRotationUnderLoad command.TestRekeyWaitsForAllProcesses caddymodule.TestRotationReachesRunningRequests store.TestProcesses",
	},
	{
		"S64, two listeners at one address: A gateway doesn't start, and takes no request, where another process listens, and a worker not " +
			"where a site, the admin interface or another process does. A reload keeps its own addresses.",
		"tests.TestTakenAddress caddymodule.TestTaken caddymodule.TestOverlap caddymodule.TestGatewaysListener " +
			"caddymodule.TestWorkersListener",
	},
	{
		"S65, the log as a disk to fill: A refused request of an organization is logged with its ids, of each code the first 60 in a minute; " +
			"what strangers are refused isn't logged at the usual level.",
		"caddymodule.TestRefusedRequestsCanBeFound caddymodule.TestErrorLogsTheCause",
	},
	{
		"S66, what an erased customer leaves on the disk: Nothing readable, in any file of the database or its log: no text, name, file or " +
			"address, and no id of the platform. SQLite overwrites the encrypted rows, too.",
		"inbox.TestErasedIsErased inbox.TestOrganizationsShareNoSealedID sqlite.TestScrub sqlite.TestScrubBeforeTheEnd",
	},
	{
		"S67, a full store of files: A file that finds no room waits, and is fetched when others are deleted, or within the hour, for a week. " +
			"One customer's files take at most an eighth; their oldest go first.",
		"media.TestFilesWaitForRoom media.TestACustomersOldestFilesGoFirst",
	},
	{
		"S68, a channel whose secret is replaced, which is deleted, taken back or moved to another organization, while deliveries come to " +
			"another node: The next delivery is judged by the channel as it is: what was signed with the old secret is refused, what is signed " +
			"with the new one is accepted, and nothing of a refused delivery decides about those that are stored with it.",
		"webhook.TestAChangeOfARememberedBot webhook.TestAChangeOfARememberedPage webhook.TestSecretsChangeDuringDeliveries " +
			"inbox.TestRememberedRouteIsChecked store.TestRememberedRoutes store.TestRoutesDiffer",
	},
	{
		"S69, guessing or repeating codes of second factors: A code counts once on all nodes together, ten may be wrong in an hour, and neither a link nor " +
			"a reset of the password goes round it.",
		"identity.TestCodesAreUsedOnce identity.TestWrongCodesAreBounded identity.TestSecondFactorOfUsers api.TestSecondFactorOverHTTP",
	},
	{
		"S70, rights of operators: Each operation names its scope, checked in one place for keys, sessions and commands; keys of tenants and operators " +
			"are refused at the other's door.",
		"api.TestScopesOfOperators identity.TestOperatorKeys identity.TestOperatorsSignIn identity.TestSecondFactorGrowsOld identity.TestLastAdministrator",
	},
	{
		"S71, payments that were not made: A delivery is proved over its raw bytes by a secret of 16 bytes or more, or refused without a reason; no " +
			"configuration without a proof is loaded. A payment is credited once, whatever is delivered how often and by whom, and never in test mode, in " +
			"another currency or above the limit.",
		"paymentstest.TestWrongAdapters webhook.TestPaymentDeliveries topup.TestReceive caddymodule.TestPaymentSettings billing.TestPaymentIsCreditedOnce " +
			"tests.TestPayments",
	},
}

// TestAttacks: the numbers have no gap, docs/reliability.md has each of them, and each promise is shown by tests.
func TestAttacks(t *testing.T) {
	t.Parallel()
	requireShown(t, attacks)
	require.GreaterOrEqual(t, len(attacks), 71, "a check that no longer applies says so, so that its number keeps its meaning")
	page := read(t, "reliability.md")
	for i, attack := range attacks {
		number := fmt.Sprintf("S%d", i+1)
		require.True(t, strings.HasPrefix(attack.promise, number+", "), attack.promise)
		require.Regexp(t, `\b`+number+`\b`, page)
	}
}
