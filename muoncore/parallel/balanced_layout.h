// The `balanced` layout: whole parameters are dealt to ranks over all buckets at once, so that
// every rank has about the same Newton-Schulz work and, as far as that leaves a choice, the same
// elements, in all and in each bucket. Shares differ from rank to rank and are exchanged by
// all-to-all with split sizes, so nothing is padded but starts to kParamAlignment.
#pragma once

#include <vector>

#include "muoncore/parallel/param_layout.h"

namespace muoncore::parallel {

// Both buffers lie in backward order: bucket b + 1 is complete after bucket b. A bucket closes once
// it has bucket_size elements (a soft minimum: the last may have fewer); a shared embedding has a
// bucket of its own. numel_unpadded counts parameters alone.
//
// `whole`: in each bucket the ranks' shares follow each other in rank order; inside a share,
// backward order. A rank may own nothing, in a bucket or at all. Owners:
//  1. costs, largest first, to the least loaded rank (LPT; Graham, "Bounds on multiprocessing
//     timing anomalies", 1969), then moves and swaps between two ranks while they lower the largest
//     load;
//  2. moves and swaps while they lower the largest number of elements and leave the largest cost
//     as it is;
//  3. which of several equal parameters a rank gets is chosen bucket by bucket, to the rank with
//     the fewest elements in the bucket: no bucket is sent by one rank alone if others can share.
//
// `cut`: each bucket is cut at multiples of kParamAlignment of the buffer. As parameters start
// there too, every cut lies a multiple of kParamAlignment elements after the start of the parameter
// that it cuts, whatever dp is: sums taken per such block of a parameter do not depend on the
// layout. A rank that owns fewer elements in `whole` takes more here, in every bucket in the same
// proportion, so that what ranks store and send is even where there is enough to even it out. Not
// so in the bucket of a shared embedding: that is cut evenly, so that all stages that hold it cut
// it alike and can add up its gradients shard by shard.
//
// Everything is in integers with ties to the lower index: every rank computes the same layout.
//
// Throws Error on dp < 1, bucket_size < 1, an empty shape, or `before` of another length than dp.
ParamLayout balanced_layout(const std::vector<LayoutParam>& params, const LayoutOptions& options);

}  // namespace muoncore::parallel
