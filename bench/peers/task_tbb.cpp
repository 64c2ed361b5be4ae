// SPDX-License-Identifier: Apache-2.0
// Peer: oneTBB flow graph. Usage: peer SHAPE TASKS THREADS GRAIN_NS [again]
// Prints nanoseconds per task, building the graph each time or, with `again`, running it again.
#include <memory>
#include <vector>

#include <tbb/flow_graph.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>

extern "C" {
#include "task_shapes.h"
}

static uint64_t work;
static inline void body()
{
    if (work)
        burn(work);
    else
        __asm__ volatile("");
}

using node = tbb::flow::continue_node<tbb::flow::continue_msg>;

struct graph {
    tbb::flow::graph g;
    std::vector<std::unique_ptr<node>> nodes;
    std::vector<node *> roots;
    graph(char shape, uint32_t n, uint32_t width)
    {
        nodes.reserve(n);
        for (uint32_t i = 0; i < n; i++) {
            nodes.push_back(
                std::make_unique<node>(g, [](const tbb::flow::continue_msg &) { body(); }));
            uint32_t d[2];
            int count = shape_deps(shape, i, width, d);
            for (int k = 0; k < count; k++)
                tbb::flow::make_edge(*nodes[d[k]], *nodes[i]);
            if (!count)
                roots.push_back(nodes.back().get());
        }
    }
    void run()
    {
        for (node *r : roots)
            r->try_put(tbb::flow::continue_msg());
        g.wait_for_all();
    }
};

int main(int argc, char **argv)
{
    if (argc < 5)
        return 2;
    char shape = argv[1][0];
    uint32_t n = (uint32_t)atoi(argv[2]);
    int threads = atoi(argv[3]);
    double grain = atof(argv[4]);
    bool again = argc > 5;
    tbb::global_control control(tbb::global_control::max_allowed_parallelism, (size_t)threads);
    work = (uint64_t)(grain * burn_rate());
    uint32_t width = grain > 0 ? GRAIN_WIDTH : WAVE_WIDTH;
    std::unique_ptr<graph> kept;
    if (again)
        kept = std::make_unique<graph>(shape, n, width);
    double t[REPEATS];
    int repeats = grain > 0 ? 3 : 5;
    for (int k = -1; k < repeats; k++) {
        double begin = now_ns();
        if (shape == 'f') {
            for (int i = 0; i < FORK_OPS; i++)
                tbb::parallel_for(
                    0, threads, [](int) { body(); }, tbb::static_partitioner());
        } else if (again) {
            kept->run();
        } else {
            graph once(shape, n, width);
            once.run();
        }
        if (k >= 0)
            t[k] = (now_ns() - begin) / (shape == 'f' ? FORK_OPS : n);
    }
    printf("%.2f\n", median(t, repeats));
    return 0;
}
