#pragma once
#include <cstdint>
#include <string_view>

/// Every step of a protocol at which a process can be made to die, one in each line: POINT(enumerator, name).
/// CALL(enumerator, name) is one before a call that can be made to fail, too. In the order in which a session
/// comes by them. docs/crash-points.md says what each of them is.
// clang-format off
#define GPUMEM_CRASH_POINTS(POINT, CALL)                            \
  /* The broker: it starts, and takes over. */                      \
  POINT(kRestartCounted, "broker.restart.counted")                  \
  POINT(kRestartRead, "broker.restart.read")                        \
  POINT(kRestartRestored, "broker.restart.restored")                \
  CALL(kJournalRewrite, "broker.journal.rewrite")                   \
  POINT(kJournalPrepared, "broker.journal.prepared")                \
  POINT(kJournalRenamed, "broker.journal.renamed")                  \
  POINT(kRestartBegun, "broker.restart.begun")                      \
  POINT(kRestartSettled, "broker.restart.settled")                  \
  POINT(kRestartListening, "broker.restart.listening")              \
  POINT(kResumeRead, "broker.resume.read")                          \
  POINT(kResumeDecided, "broker.resume.decided")                    \
  POINT(kResumeWelcomed, "broker.resume.welcomed")                  \
  POINT(kRestartGraceOver, "broker.restart.grace_over")             \
  /* A session and its slices. */                                   \
  POINT(kSessionAccepted, "broker.session.accepted")                \
  CALL(kSessionEnds, "broker.session.ends")                         \
  POINT(kSessionOpened, "broker.session.opened")                    \
  POINT(kSessionJournalled, "broker.session.journalled")            \
  POINT(kSessionWelcomed, "broker.session.welcomed")                \
  POINT(kSliceRead, "broker.slice.read")                            \
  POINT(kSliceOpened, "broker.slice.opened")                        \
  POINT(kSliceCloseRead, "broker.slice.close_read")                 \
  POINT(kSliceClosed, "broker.slice.closed")                        \
  POINT(kSessionClosed, "broker.session.closed")                    \
  POINT(kSessionEnded, "broker.session.ended")                      \
  /* Passed by every change: journal, device worker, lane. */       \
  CALL(kJournalWrite, "broker.journal.write")                       \
  POINT(kJournalWritten, "broker.journal.written")                  \
  POINT(kExtentDestroy, "broker.extent.destroy")                    \
  POINT(kExtentDestroyed, "broker.extent.destroyed")                \
  CALL(kExtentCreate, "broker.extent.create")                       \
  CALL(kExtentExport, "broker.extent.export")                       \
  POINT(kExtentCreated, "broker.extent.created")                    \
  POINT(kExtentKnown, "broker.extent.known")                        \
  CALL(kSend, "broker.send")                                        \
  /* The service manager keeps descriptors of what is lent. */      \
  POINT(kStoreTaken, "broker.store.taken")                          \
  CALL(kStoreKeep, "broker.store.keep")                             \
  POINT(kStoreKept, "broker.store.kept")                            \
  CALL(kStoreForget, "broker.store.forget")                         \
  POINT(kStoreForgotten, "broker.store.forgotten")                  \
  /* Memory goes out and comes back. */                             \
  POINT(kGrowRead, "broker.grow.read")                              \
  POINT(kGrowDecided, "broker.grow.decided")                        \
  POINT(kGrowAnswer, "broker.grow.answer")                          \
  POINT(kGrowAnswered, "broker.grow.answered")                      \
  POINT(kGrowAcceptRead, "broker.grow.accept_read")                 \
  POINT(kGrowActive, "broker.grow.active")                          \
  POINT(kReturnRead, "broker.return.read")                          \
  POINT(kReturnTaken, "broker.return.taken")                        \
  POINT(kPressurePublished, "broker.pressure.published")            \
  POINT(kPressureRung, "broker.pressure.rung")                      \
  POINT(kPressureSpent, "broker.pressure.spent")                    \
  POINT(kPressureSignal, "broker.pressure.signal")                  \
  POINT(kPressureSignalled, "broker.pressure.signalled")            \
  /* Sharing. */                                                    \
  POINT(kExportRead, "broker.share.export_read")                    \
  POINT(kExported, "broker.share.exported")                         \
  POINT(kImportRead, "broker.share.import_read")                    \
  POINT(kImportDecided, "broker.share.import_decided")              \
  POINT(kImportSent, "broker.share.import_sent")                    \
  POINT(kReleaseRead, "broker.share.release_read")                  \
  POINT(kReleased, "broker.share.released")                         \
  /* Regions. */                                                    \
  POINT(kPublishRead, "broker.region.publish_read")                 \
  POINT(kPublished, "broker.region.published")                      \
  POINT(kMapRead, "broker.region.map_read")                         \
  POINT(kMapDecided, "broker.region.map_decided")                   \
  POINT(kMapSent, "broker.region.map_sent")                         \
  POINT(kMapAdopted, "broker.region.adopted")                       \
  POINT(kMapWaits, "broker.region.waits")                           \
  POINT(kMapAnswer, "broker.region.wait_answer")                    \
  POINT(kMapAnswered, "broker.region.wait_answered")                \
  POINT(kReserveRead, "broker.region.reserve_read")                 \
  POINT(kReserved, "broker.region.reserved")                        \
  POINT(kReserveAnswered, "broker.region.reserve_answered")         \
  POINT(kReservationReleaseRead, "broker.region.release_read")      \
  POINT(kReservationReleased, "broker.region.released")             \
  POINT(kRemoveRead, "broker.region.remove_read")                   \
  POINT(kRemoved, "broker.region.removed")                          \
  POINT(kRegionKept, "broker.region.kept")                          \
  POINT(kRegionExpired, "broker.region.expired")                    \
  /* A quota is changed; the broker is stopped. */                  \
  CALL(kQuotaPrepare, "broker.quota.prepare")                       \
  POINT(kQuotaPrepared, "broker.quota.prepared")                    \
  POINT(kQuotaApplied, "broker.quota.applied")                      \
  CALL(kQuotaCommit, "broker.quota.commit")                         \
  POINT(kQuotaCommitted, "broker.quota.committed")                  \
  POINT(kShutdownBegun, "broker.shutdown.begun")                    \
  POINT(kShutdownLeft, "broker.shutdown.left")                      \
  POINT(kShutdownDrained, "broker.shutdown.drained")                \
  /* The client: a session and its slices. */                       \
  POINT(kClientConnected, "client.session.connected")               \
  POINT(kClientGreeted, "client.session.greeted")                   \
  POINT(kClientOpen, "client.session.open")                         \
  CALL(kClientSend, "client.send")                                  \
  POINT(kClientSliceOpened, "client.slice.opened")                  \
  CALL(kClientReserve, "client.slice.reserve")                      \
  POINT(kClientSliceClose, "client.slice.close")                    \
  POINT(kClientSliceClosed, "client.slice.closed")                  \
  POINT(kClientGoodbye, "client.session.goodbye")                   \
  POINT(kClientLeft, "client.session.left")                         \
  /* Memory goes out and comes back. */                             \
  POINT(kClientGrowSent, "client.grow.sent")                        \
  POINT(kClientGrowReceived, "client.grow.received")                \
  CALL(kClientGrowImport, "client.grow.import")                     \
  POINT(kClientGrowImported, "client.grow.imported")                \
  CALL(kClientGrowMap, "client.grow.map")                           \
  POINT(kClientGrowMapped, "client.grow.mapped")                    \
  POINT(kClientGrowAccepted, "client.grow.accepted")                \
  CALL(kClientUnmap, "client.return.unmap")                         \
  POINT(kClientUnmapped, "client.return.unmapped")                  \
  POINT(kClientReturnSent, "client.return.sent")                    \
  POINT(kClientReturned, "client.return.done")                      \
  POINT(kClientWoken, "client.pressure.woken")                      \
  POINT(kClientTrimmed, "client.pressure.trimmed")                  \
  POINT(kClientSpent, "client.pressure.spent")                      \
  /* Sharing. */                                                    \
  POINT(kClientExported, "client.share.exported")                   \
  POINT(kClientImportSent, "client.share.import_sent")              \
  POINT(kClientImportReceived, "client.share.import_received")      \
  CALL(kClientImport, "client.share.import")                        \
  CALL(kClientImportMap, "client.share.map")                        \
  POINT(kClientImportMapped, "client.share.mapped")                 \
  POINT(kClientImportUnmapped, "client.share.unmapped")             \
  POINT(kClientReleaseSent, "client.share.release_sent")            \
  POINT(kClientReleased, "client.share.released")                   \
  /* Regions. */                                                    \
  POINT(kClientPublishSent, "client.region.publish_sent")           \
  POINT(kClientPublished, "client.region.published")                \
  POINT(kClientMapSent, "client.region.map_sent")                   \
  POINT(kClientMapReceived, "client.region.map_received")           \
  POINT(kClientReserveSent, "client.region.reserve_sent")           \
  POINT(kClientReserved, "client.region.reserved")                  \
  POINT(kClientReservationReleaseSent, "client.region.release_sent")\
  POINT(kClientReservationReleased, "client.region.released")       \
  POINT(kClientRemoveSent, "client.region.remove_sent")             \
  POINT(kClientRemoved, "client.region.removed")                    \
  /* Another broker. */                                             \
  POINT(kClientReconnected, "client.resume.connected")              \
  POINT(kClientClaimed, "client.resume.claimed")                    \
  POINT(kClientWelcomed, "client.resume.welcomed")                  \
  POINT(kClientRemapped, "client.resume.remapped")                  \
  POINT(kClientResent, "client.resume.resent")                      \
  /* gpumem-dra: a claim is prepared and taken away; how each file comes to the disk. */ \
  POINT(kDraNoted, "dra.prepare.noted")                             \
  POINT(kDraLookedUp, "dra.prepare.looked_up")                      \
  POINT(kDraSaved, "dra.prepare.saved")                             \
  POINT(kDraInForce, "dra.prepare.in_force")                        \
  POINT(kDraPrepared, "dra.prepare.prepared")                       \
  POINT(kDraUnspecified, "dra.unprepare.unspecified")               \
  POINT(kDraWithdrawn, "dra.unprepare.withdrawn")                   \
  POINT(kDraUnprepared, "dra.unprepare.unprepared")                 \
  CALL(kDraWrite, "dra.file.write")                                 \
  POINT(kDraWritten, "dra.file.written")                            \
  POINT(kDraRenamed, "dra.file.renamed")
// clang-format on

namespace gpumem {

enum class CrashPoint : std::uint8_t {
#define GPUMEM_ENUMERATE(enumerator, name) enumerator,
  GPUMEM_CRASH_POINTS(GPUMEM_ENUMERATE, GPUMEM_ENUMERATE)
#undef GPUMEM_ENUMERATE
};

/// What a point of the list is.
struct CrashPointEntry {
  std::string_view name;  ///< "broker.", "client." or "dra.", the protocol, the step
  CrashPoint point;
  bool can_fail;  ///< the point is before a call that can be made to fail
};

/// The list, by the points' values.
inline constexpr CrashPointEntry kCrashPoints[] = {
#define GPUMEM_DESCRIBE_POINT(enumerator, name) {name, CrashPoint::enumerator, false},
#define GPUMEM_DESCRIBE_CALL(enumerator, name) {name, CrashPoint::enumerator, true},
    GPUMEM_CRASH_POINTS(GPUMEM_DESCRIBE_POINT, GPUMEM_DESCRIBE_CALL)
#undef GPUMEM_DESCRIBE_POINT
#undef GPUMEM_DESCRIBE_CALL
};

}  // namespace gpumem
