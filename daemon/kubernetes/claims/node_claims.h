#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "daemon/kubernetes/claims/broker_client.h"
#include "daemon/kubernetes/claims/checkpoint.h"
#include "daemon/kubernetes/claims/device_specs.h"
#include "daemon/kubernetes/http/api_server.h"
#include "gpumem/result.h"

namespace gpumem::kubernetes {

/// The claims that are prepared on this node, in all three places: the checkpoint, the broker and the device
/// specifications. The checkpoint is written first and forgets last, so whatever is in the other two can be
/// taken away.
///
/// Errors are fit to be the event of a pod: they name the claim and say what to do.
/// Threads  any; what changes the node is done by one at a time, of all processes of the driver. Blocks.
class NodeClaims {
 public:
  struct Options {
    std::string driver;
    std::string node;
    std::filesystem::path folder;  ///< of the plugin: the checkpoint's and the lock's
  };

  /// Whether the caller has gone. Threads  any.
  using IsCancelled = std::function<bool()>;

  NodeClaims(Options options, const ApiServer& server, BrokerClient& broker, const DeviceSpecs& specs)
      : options_(std::move(options)),
        server_(server),
        broker_(broker),
        specs_(specs),
        checkpoint_(options_.folder) {}

  /// Recovers the state of earlier processes. Specifications without a claim are removed. If the checkpoint
  /// is missing, or damaged and put aside, each specification is kept as a claim without other data.
  /// Errors  kFailedPrecondition: the checkpoint is of a newer version; of files.
  Result<void> recover();

  /// Prepares `claim`: afterwards its pods may borrow, and its specification is there. Again for the same
  /// claim: looks whether all is as it should be, by the checkpoint if the API server is away. If it fails
  /// for the first time, nothing is left, unless the broker did not answer.
  /// Errors  kCancelled: the caller has gone; kAborted: unprepared meanwhile, by whichever process of the
  /// driver; nothing is prepared then.
  Result<PreparedClaim> prepare(const ClaimReference& claim, const IsCancelled& is_cancelled);

  /// Takes `claim` away, which may be gone from the API server; that it was never prepared is no error.
  Result<void> unprepare(const ClaimReference& claim);

  /// Brings the broker to what is prepared. Needs no API server. Errors  the first that came up; the others
  /// were done.
  Result<void> refresh_broker();

  /// The devices that claims have, by their names in the ResourceSlice. Errors  of the checkpoint.
  Result<std::set<std::string>> devices();

  /// Brings claims to the pods that share them now: the kubelet prepares a claim for its first pod only.
  /// Errors  the first that came up; the others were done, unless the API server is away.
  Result<void> refresh_pods();

 private:
  /// The content of the checkpoint, with the lock that permits changing it.
  struct Held {
    StateLock lock;
    PreparedClaims claims;
  };

  Result<Json> fetch(const ClaimReference& claim, Retry retry) const;
  Result<PreparedClaim> resolve(const ClaimReference& claim, const Json& object);
  Result<PreparedClaim> look_up(const PreparedClaim& known, const ClaimReference& claim);
  /// Puts `claim` into the checkpoint, without shares, if it is not there, before anything is asked that
  /// takes time: an Unprepare meanwhile takes it out. What is in the checkpoint of it.
  Result<PreparedClaim> note(const ClaimReference& claim);
  Result<void> drop_note(const std::string& uid);
  bool is_noted_only(const PreparedClaim& one) const;
  Result<PreparedClaim> apply_if_wanted(PreparedClaim claim, const IsCancelled& is_cancelled);
  /// `claim` is in the checkpoint.
  Result<PreparedClaim> apply(Held& held, PreparedClaim claim);
  Result<void> refresh_pods_of(const PreparedClaim& claim);
  /// Waits for the lock. The checkpoint; without one, or with a damaged one, what has a specification.
  Result<Held> hold();
  /// With StateLock.
  Result<PreparedClaims> load();

  Options options_;
  const ApiServer& server_;
  BrokerClient& broker_;
  const DeviceSpecs& specs_;
  Checkpoint checkpoint_;
};

}  // namespace gpumem::kubernetes
