#include "daemon/rpc/watch/watch_stream.h"

#include <utility>

#include "daemon/core/words/refusals.h"

namespace gpumem::rpc {

WatchStream::WatchStream(core::Executor& executor, Calls& calls, std::shared_ptr<Viewing> viewing,
                         const std::shared_ptr<SubscriberLimit>& limit,
                         const grpc::CallbackServerContext& context)
    : calls_(calls),
      viewing_(std::move(viewing)),
      viewer_(std::make_shared<Viewer>(*this, context, connection_of(context))) {
  calls_.begin();
  executor.post_for(viewer_->connection(),
                    [&executor, viewing = viewing_, viewer = viewer_, limit](core::Broker&, core::TimePoint) {
                      const auto caller = caller_of(executor, viewer->connection());
                      if (!caller) return viewer->finish(caller.error());
                      auto place = limit->add(caller->peer.account(), caller->admin);
                      if (!place)
                        return viewer->finish(core::refusal(core::Bound::kFollowers,
                                                            "too many watch already; end some of them"));
                      if (!viewer->hold(std::move(place))) return;
                      viewing->add(viewer);
                      if (viewer->is_gone()) viewing->remove(*viewer);  // its call was over before
                    });
}

void WatchStream::OnWriteDone(bool ok) { viewer_->written(ok); }

void WatchStream::OnCancel() { viewer_->cancelled(); }

void WatchStream::OnDone() {
  viewer_->gone();
  viewing_->remove(*viewer_);
  Calls& calls = calls_;
  delete this;
  calls.end();
}

}  // namespace gpumem::rpc
