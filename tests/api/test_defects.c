/* SPDX-License-Identifier: Apache-2.0
 * Mistakes that executors of this kind make, by the number under which our notes list them (D: the
 * catalogue, E: the executor): programs compiled in every way give the right values. The same for
 * single evaluators stands in op/test_defects, for derivatives in diff/test_defects. */
#include "api/ways.h"

/* --- D2: whoever reads a value counts as its reader ------------------------------------------- */

#define CUT                                                                                        \
    "in %x : f32[1,2,4]\nconst %f : i64[1] = [1]\nconst %t : i64[1] = [3]\nconst %a : i64[1] = "   \
    "[2]\n%p = Mul(%x, %x) @p\n%q = Slice(%p, %f, %t, %a) @q\n%e = Exp(%p) @e\n%n = Neg(%e) "      \
    "@n\n%z = ReduceMin(%n) keepdims=0 @z\n"

/* A slice of a temporary, read by an absorbing op and by another one, or going out. */
static void D2_every_reader_of_a_slice_counts(void **state)
{
    (void)state;
    static const char *const readers[] = {
        "%r = Identity(%q) @r\nout %r",
        "%r = Transpose(%q) perm=[0, 2, 1] @s\nout %r",
        "%r = ReduceSum(%q, %f) keepdims=0 @r\nout %r",
        "const %w : f32[1,2,1] = [1, 1]\n%r = Conv(%q, %w) @r\nout %r",
        "const %c : bool[2] = [true, false]\n%r = Where(%c, %q, %z) @r\nout %r",
        "const %l : f32[] = [5]\n%r = Less(%q, %l) @r\nout %r",
        "const %s : i64[2] = [2, 2]\n%v = Reshape(%q, %s) @v\nconst %o : i64[1] = [0]\n%r = "
        "Slice(%v, %f, %a, %o) @r\nout %r",
        "const %s : f32[3] = [0, 0, 0]\n%i = ReduceSum(%q) keepdims=0 @i\n%r = Scan(%i, %s | %q) "
        "body=graph \"b\" {\nin %c : f32[]\nin %u : f32[]\ncapture %k : f32[1,2,2]\n%m = "
        "ReduceMax(%k) keepdims=0 @m\n%d = Add(%c, %m) @d\nout %d\n} num_scan_inputs=1 @r\nout %r",
    };
    const ways_values want[] = {L(4, 9, 36, 49),  L(4, 36, 9, 49), L(40, 58), L(40, 58),
                                L(4, -8, 36, -8), L(1, 0, 0, 0),   L(36, 49), L(245)};
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        char body[2048];
        snprintf(body, sizeof body, "%s%s\n%%y = Add(%%q, %%z) @y\nout %%y", CUT, readers[i]);
        double z = -exp(64), y[] = {4 + z, 9 + z, 36 + z, 49 + z};
        ways_values w = want[i];
        double with_z[] = {4, z, 36, z};
        if (i == 4)
            w.values = with_z;
        ways_expect(body, LISTS(L(1, 2, 3, 4, 5, 6, 7, 8)), LISTS(w, ((ways_values){4, y})), 1e-5);
    }
}

/* --- E2: nothing is skipped ------------------------------------------------------------------- */

static void E2_unknown_ops_are_refused_by_name(void **state)
{
    (void)state;
    tacit_error err;
    assert_int_not_equal(ways_refused("in %x : f32[2]\n%y = Nonsense(%x) @here\nout %y", &err),
                         TACIT_OK);
    assert_non_null(strstr(err.message, "Nonsense"));
    assert_non_null(strstr(err.message, "here"));
}

/* --- attention -------------------------------------------------------------------------------- */

static void E3_scale_and_softcap_count_in_programs(void **state)
{
    (void)state;
    for (int cap = 0; cap < 2; cap++) {
        char body[512];
        snprintf(body, sizeof body,
                 "in %%q : f32[1,1,1,1]\nin %%k : f32[1,1,2,1]\nin %%v : f32[1,1,2,1]\n%%y = "
                 "tacit.Attention(%%q, %%k, %%v) scale=0.25 softcap=%d.0 @y\nout %%y",
                 cap);
        double score = cap ? tanh(1.5) : 1.5, want = exp(score) / (1 + exp(score));
        ways_expect(body, LISTS(L(2), L(0, 3), L(0, 1)), LISTS(L(want)), 1e-6);
    }
}

/* Keys of one head see all but one position equal; the odd one carries weight e^-d of them and a
 * value that makes it count. Long and short rows give what the formula says. */
static void E17_small_weights_count_at_every_length(void **state)
{
    (void)state;
    static const int lengths[] = {2, 7, 33, 300};
    for (int i = 0; i < 4; i++) {
        int n = lengths[i];
        double k[300] = {0}, v[300] = {0}, want;
        char body[512];
        snprintf(body, sizeof body,
                 "in %%q : f32[1,1,1,1]\nin %%k : f32[1,1,%d,1]\nin %%v : f32[1,1,%d,1]\n%%y = "
                 "tacit.Attention(%%q, %%k, %%v) scale=1.0 @y\nout %%y",
                 n, n);
        k[n - 1] = -30;
        v[n - 1] = 1e16;
        want = 1e16 * exp(-30) / (n - 1 + exp(-30));
        ways_expect(body, LISTS(L(1), ((ways_values){(size_t)n, k}), ((ways_values){(size_t)n, v})),
                    LISTS(L(want)), 1e-5);
    }
}

/* A query that is not a number spoils its own row and no other, at every length. */
static void E17_nan_spoils_its_row_alone(void **state)
{
    (void)state;
    static const int lengths[] = {2, 40, 130};
    for (int i = 0; i < 3; i++) {
        int n = lengths[i];
        double q[130] = {0}, v[130], want[130];
        char body[512];
        snprintf(body, sizeof body,
                 "in %%q : f32[1,1,%d,1]\nin %%v : f32[1,1,%d,1]\n%%y = "
                 "tacit.Attention(%%q, %%v, %%v) scale=1.0 @y\nout %%y",
                 n, n);
        for (int k = 0; k < n; k++) {
            v[k] = k;
            want[k] = (n - 1) / 2.0;
        }
        q[1] = want[1] = NAN;
        ways_values all = {(size_t)n, v};
        ways_expect(body, LISTS(((ways_values){(size_t)n, q}), all),
                    LISTS(((ways_values){(size_t)n, want})), 1e-5);
    }
}

/* All scores are zero, so every channel of the result is the mean of its values. */
static void E27_any_head_width_keeps_its_last_channels(void **state)
{
    (void)state;
    enum { KEYS = 5, MOST = 67 };
    static const int widths[] = {1, 2, 3, 5, 6, 7, 9, 13, 17, 31, 33, 63, MOST};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        int d = widths[i];
        double q[3 * MOST] = {0}, k[KEYS * MOST], v[KEYS * MOST], want[3 * MOST];
        char body[512];
        snprintf(body, sizeof body,
                 "in %%q : f32[1,1,3,%d]\nin %%k : f32[1,1,5,%d]\nin %%v : f32[1,1,5,%d]\n%%y = "
                 "tacit.Attention(%%q, %%k, %%v) @y\nout %%y",
                 d, d, d);
        for (int j = 0; j < KEYS * d; j++) {
            k[j] = j % 7;
            v[j] = j % d + 10 * (j / d);
        }
        for (int j = 0; j < 3 * d; j++)
            want[j] = j % d + 20;
        ways_values keys = {(size_t)(KEYS * d), k}, values = {(size_t)(KEYS * d), v};
        ways_values rows = {(size_t)(3 * d), q}, means = {(size_t)(3 * d), want};
        ways_expect(body, LISTS(rows, keys, values), LISTS(means), 1e-5);
    }
}

/* --- images ----------------------------------------------------------------------------------- */

/* The second image of a batch is twice the first: what is linear doubles, norms are the same. */
static void E4_second_images_of_a_batch(void **state)
{
    (void)state;
    const double x[] = {1, 3, -1, 1, 2, 6, -2, 2};
    ways_values in = {8, x};
    ways_expect("in %x : f32[2,2,2]\nconst %g : f32[2] = [1, 1]\nconst %b : f32[2] = [0, 1]\n%y = "
                "GroupNormalization(%x, %g, %b) num_groups=2 epsilon=0.0 @y\nout %y",
                LISTS(in), LISTS(L(-1, 1, 0, 2, -1, 1, 0, 2)), 1e-5);
    ways_expect("in %x : f32[2,1,1,4]\nconst %s : f32[4] = [1, 1, 1, 2]\n%y = Resize(%x, _, %s) "
                "coordinate_transformation_mode=\"asymmetric\" nearest_mode=\"floor\" @y\nout %y",
                LISTS(in), LISTS(L(1, 1, 3, 3, -1, -1, 1, 1, 2, 2, 6, 6, -2, -2, 2, 2)), 0);
    ways_expect("in %x : f32[2,1,4]\n%y = tacit.AxialRope2d(%x) head_dim=4 end_x=1 end_y=1 "
                "@y\nout %y",
                LISTS(in), LISTS(in), 1e-6);
}

static void E11_pools_do_what_their_name_says(void **state)
{
    (void)state;
    static const struct {
        const char *node;
        double want[2];
    } pools[] = {
        {"MaxPool(%x) kernel_shape=[2] strides=[2]", {3, -1}},
        {"AveragePool(%x) kernel_shape=[2] strides=[2]", {2, -2}},
        {"LpPool(%x) kernel_shape=[2] strides=[2] p=1", {4, 4}},
        {"LpPool(%x) kernel_shape=[2] strides=[2] p=2", {3.1622776601683795, 3.1622776601683795}}};
    for (size_t i = 0; i < sizeof pools / sizeof *pools; i++) {
        char body[256];
        snprintf(body, sizeof body, "in %%x : f32[1,1,4]\n%%y = %s @y\nout %%y", pools[i].node);
        ways_expect(body, LISTS(L(1, 3, -1, -3)), LISTS(((ways_values){2, pools[i].want})), 1e-6);
    }
    tacit_error err;
    const char *kinds[] = {"MinPool", "ProdPool"};
    for (int i = 0; i < 2; i++) { /* no kind stands in for another */
        char body[256];
        snprintf(body, sizeof body,
                 "in %%x : f32[1,1,4]\n%%y = %s(%%x) kernel_shape=[2] @y\nout %%y", kinds[i]);
        ways_refused(body, &err);
        assert_non_null(strstr(err.message, kinds[i]));
    }
}

/* Padding alone has no maximum, and no place where it is. A dilated window may step over all. */
static void E11_windows_of_padding_alone_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"f32[1,1,3]\n%y = MaxPool(%x) kernel_shape=[2] pads=[2, 0]",
                                      "f32[1,1,3]\n%y = MaxPool(%x) kernel_shape=[2] pads=[0, 2]",
                                      "f32[1,1,1]\n%y = MaxPool(%x) kernel_shape=[2] "
                                      "dilations=[2] pads=[1, 1]"};
    for (int i = 0; i < 3; i++) {
        char body[256];
        tacit_error err;
        snprintf(body, sizeof body, "in %%x : %s @y\nout %%y", bad[i]);
        assert_int_equal(ways_refused(body, &err), TACIT_ERR_VALUE);
        assert_non_null(strstr(err.message, "padding alone"));
    }
    ways_expect("in %x : f32[1,1,3]\n%y, %i = MaxPool(%x) kernel_shape=[2] dilations=[2] pads=[2, "
                "2] @y\nout %y\nout %i",
                LISTS(L(-1, -2, -3)), LISTS(L(-1, -2, -1, -2, -3), L(0, 1, 0, 1, 2)), 0);
}

/* The Gaussians are counted by their own shape, whoever made them. */
static void E26_rasterising_counts_its_gaussians(void **state)
{
    (void)state;
    static const char head[] =
        "in %p : f32[2,2]\nin %s : f32[2,3]\nin %d : f32[2]\nin %r : f32[2]\nin %c : f32[2,3]\nin "
        "%o : f32[2]\n";
    static const char *const middles[] = {
        "%y = tacit.SplatRasterize(%p, %s, %d, %r, %c, %o) width=2 height=1 @y\nout %y",
        "%t = Transpose(%p) perm=[1, 0] @t\n%u = Transpose(%t) perm=[1, 0] @u\n%k = Neg(%d) @k\n%l "
        "= Neg(%k) @l\n%y = tacit.SplatRasterize(%u, %s, %l, %r, %c, %o) width=2 height=1 @y\nout "
        "%y"};
    for (int i = 0; i < 2; i++) {
        char body[1024];
        snprintf(body, sizeof body, "%s%s", head, middles[i]);
        /* one on each pixel, too narrow to reach the other */
        ways_expect(body,
                    LISTS(L(.5, .5, 1.5, .5), L(100, 0, 100, 100, 0, 100), L(1, 2), L(3, 3),
                          L(1, 0, 0, 0, 1, .5), L(.5, .25)),
                    LISTS(L(.5, 0, 0, 0, .25, .125)), 1e-6);
    }
}

/* --- loops ------------------------------------------------------------------------------------ */

#define SCAN_OF(TYPE, NODE, LENGTH)                                                                \
    "in %i : " TYPE "[2]\nin %x : " TYPE "[" LENGTH ",2]\n%l, %a = Scan(%i, %x) body=graph \"b\" " \
    "{\nin %c : " TYPE "[2]\nin %u : " TYPE "[2]\n%d = " NODE                                      \
    "(%c, %u) @d\nout %d\nout %d\n} num_scan_inputs=1 @l\nout %l\nout %a"

/* 2^53 + 1 is no double, and the parts of a complex number are two numbers. */
static void E21_carries_keep_their_type(void **state)
{
    (void)state;
    const char *body = "in %x : i64[2]\nconst %i : i64[] = [9007199254740992]\n%l = Scan(%i, %x) "
                       "body=graph \"b\" {\nin %c : i64[]\nin %u : i64[]\n%d = Add(%c, %u) @d\nout "
                       "%d\n} num_scan_inputs=1 @l\nconst %k : i64[] = [9007199254740993]\n%y = "
                       "Sub(%l, %k) @y\nout %y";
    ways_expect(body, LISTS(L(1, 2)), LISTS(L(2)), 0);
    ways_expect(SCAN_OF("c64", "Mul", "2"), LISTS(L(1, 0, 0, 2), L(0, 1, 1, 1, 0, 1, 2, 0)),
                LISTS(L(-1, 0, -4, 4), L(0, 1, -2, 2, -1, 0, -4, 4)), 0);
    ways_expect(SCAN_OF("i8", "Add", "2"), LISTS(L(100, -1), L(20, 1, 30, 1)),
                LISTS(L(-106, 1), L(120, 0, -106, 1)), 0);
}

static void E24_scans_over_nothing_keep_their_start(void **state)
{
    (void)state;
    ways_expect(SCAN_OF("f32", "Add", "0"), LISTS(L(3, 4), NONE), LISTS(L(3, 4), NONE), 0);
    ways_expect("in %m : i64[]\nin %x : f32[2]\nconst %c : bool[] = [true]\n%l, %a = Loop(%m, %c, "
                "%x) body=graph \"b\" {\nin %i : i64[]\nin %k : bool[]\nin %s : f32[2]\n%n = "
                "Exp(%s) @n\n%z = Identity(%k) @z\nout %z\nout %n\nout %n\n} @l\nout %l\nout %a",
                LISTS(L(0), L(3, 4)), LISTS(L(3, 4), NONE), 0);
}

/* Experts before, inside and after a loop: the inner run leaves the outer one as it was. */
static void E23_nested_runs_disturb_nobody(void **state)
{
    (void)state;
    ways_expect(
        "in %x : f32[2,1]\nin %w : f32[2,1,1]\nin %e : i64[2]\nconst %s : f32[2] = [0, 0]\n%b = "
        "tacit.GroupedMatMul(%x, %w, %e) @before\n%i = Scan(%b, %s | %w, %e) body=graph \"b\" "
        "{\nin %c : f32[2,1]\nin %u : f32[]\ncapture %v : f32[2,1,1]\ncapture %f : i64[2]\nconst "
        "%one : i64[1] = [1]\n%g = Sub(%one, %f) @g\n%d = tacit.GroupedMatMul(%c, %v, %g) "
        "@inside\nout %d\n} num_scan_inputs=1 @scan\n%y = tacit.GroupedMatMul(%i, %w, %e) "
        "@after\nout %b\nout %i\nout %y",
        LISTS(L(1, 10), L(2, 3), L(1, 0)), LISTS(L(3, 20), L(12, 180), L(36, 360)), 0);
}

/* --- in place --------------------------------------------------------------------------------- */

static void E22_sums_and_slices_of_dying_values(void **state)
{
    (void)state;
    const ways_values in = L(1, 2, 3, 4);
    ways_expect("in %x : f32[4]\nconst %a : i64[] = [0]\n%d = Add(%x, %x) @d\n%y = CumSum(%d, %a) "
                "exclusive=1 @y\n%z = Neg(%y) @z\nout %z",
                LISTS(in), LISTS(L(0, -2, -6, -12)), 0);
    ways_expect("in %x : f32[4]\nconst %a : i64[] = [0]\n%d = Add(%x, %x) @d\n%y = CumSum(%d, %a) "
                "exclusive=1 reverse=1 @y\n%z = Neg(%y) @z\nout %z",
                LISTS(in), LISTS(L(-18, -14, -8, 0)), 0);
    ways_expect("in %x : f32[4]\nconst %f : i64[1] = [1]\nconst %t : i64[1] = [4]\n%d = Add(%x, "
                "%x) @d\n%s = Slice(%d, %f, %t) @s\nconst %a : i64[] = [0]\n%y = "
                "CumSum(%s, %a) @y\nout %y",
                LISTS(in), LISTS(L(4, 10, 18)), 0);
    ways_expect("in %x : f32[4]\nconst %f : i64[1] = [3]\nconst %t : i64[1] = [-9]\nconst %a : "
                "i64[1] = [0]\nconst %b : i64[1] = [-1]\n%d = Add(%x, %x) @d\n%s = Slice(%d, %f, "
                "%t, %a, %b) @s\n%y = Sub(%s, %d) @y\nout %y",
                LISTS(in), LISTS(L(6, 2, -2, -6)), 0);
}

/* --- draws ------------------------------------------------------------------------------------ */

/* Sixty-four tokens of which four are left: runs of one session go on in the stream, a new session
 * starts it again, and what was filtered is never drawn. */
static void E25_sampling_goes_on_from_run_to_run(void **state)
{
    (void)state;
    enum { RUNS = 200 };
    tacit_model *m =
        ways_load("in %x : f32[1,64]\n%y = tacit.Sample(%x) top_k=4 seed=11 @y\nout %y");
    tacit_error err;
    float logits[64];
    int64_t first[RUNS];
    for (int i = 0; i < 64; i++)
        logits[i] = i % 16 == 5 ? 1 : 0;
    for (int way = 0; way < WAYS; way++) {
        tacit_program *p;
        tacit_session *s;
        int changes = 0;
        if (tacit_compile(m, &ways_options[way], &p, &err) != TACIT_OK ||
            tacit_session_create(p, &s, &err) != TACIT_OK)
            fail_msg("%s", err.message);
        for (int run = 0; run < RUNS; run++) {
            int64_t token = -1;
            tacit_tensor in = {.rank = 2, .dims = {1, 64}, .data = logits, .bytes = sizeof logits};
            in.dtype = TACIT_F32;
            tacit_tensor out = {0};
            if (tacit_run(s, &in, 1, &out, 1, &err) != TACIT_OK)
                fail_msg("%s", err.message);
            memcpy(&token, out.data, sizeof token);
            assert_int_equal(token % 16, 5);
            if (way == 0)
                first[run] = token;
            assert_int_equal(token, first[run]);
            changes += run > 0 && first[run] != first[run - 1];
        }
        assert_true(changes > RUNS / 2);
        tacit_session_free(s);
        tacit_program_free(p);
    }
    tacit_model_free(m);
}

/* --- section 23: where others end the process ------------------------------------------------- */

/* Each is refused with a status when it is compiled or run, and names its node. */
static void S23_what_ends_others_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "in %x : i32[4]\n%y = tacit.Fft(%x) @bad\nout %y",
        "in %x : f32[2,2]\nin %b : f32[2]\n%y = tacit.Solve(%x, %b) @bad\nout %y",
        "in %x : f32[4]\n%y = tacit.FakeQuantize(%x) bits=1 @bad\nout %y",
        "in %x : f32[4]\n%y = tacit.FakeQuantize(%x) mode=\"ema\" @bad\nout %y",
        "in %x : f32[2,0]\nconst %k : i64[1] = [1]\n%y, %i = TopK(%x, %k) @bad\nout %y",
        "in %x : i32[2]\nin %z : i32[2]\n%y = Div(%x, %z) @bad\nout %y",
        "in %x : f32[1,2,3]\nin %w : f32[2,2,1]\n%y = Conv(%x, %w) group=0 @bad\nout %y",
        "in %x : f32[1,2,3]\nin %w : f32[1,1,1]\n%y = Conv(%x, %w) group=2 @bad\nout %y",
        "in %x : f32[1,2,3]\nin %w : f32[2,2,1]\n%y = ConvTranspose(%x, %w) group=0 @bad\nout %y",
        "in %x : f32[1,2,4]\nin %c : f32[2,2]\nin %s : f32[2,2]\n%y = tacit.Rope(%x, %c, %s) "
        "head_dim=0 @bad\nout %y",
        "in %x : f32[1,2,4]\n%y = LayerNormalization(%x, _) @bad\nout %y",
        "in %x : f32[2]\nin %z : f32[3]\n%y = Add(%x, %z) @bad\nout %y",
        "in %u : f32[1,1]\nconst %i : i64[1] = [5]\n%y = tacit.ScatterAdd(%u, %i) dim=2 @bad\nout "
        "%y",
        "in %x : f32[1,2]\nin %w : f32[2,2,1]\nconst %e : i64[1] = [2]\n%y = "
        "tacit.GroupedMatMul(%x, %w, %e) @bad\nout %y",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tacit_error err;
        ways_refused(bad[i], &err);
        if (!strstr(err.message, "bad"))
            fail_msg("'%s' does not name the node of\n%s", err.message, bad[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(D2_every_reader_of_a_slice_counts),
        cmocka_unit_test(E2_unknown_ops_are_refused_by_name),
        cmocka_unit_test(E3_scale_and_softcap_count_in_programs),
        cmocka_unit_test(E17_small_weights_count_at_every_length),
        cmocka_unit_test(E17_nan_spoils_its_row_alone),
        cmocka_unit_test(E27_any_head_width_keeps_its_last_channels),
        cmocka_unit_test(E4_second_images_of_a_batch),
        cmocka_unit_test(E11_pools_do_what_their_name_says),
        cmocka_unit_test(E11_windows_of_padding_alone_are_refused),
        cmocka_unit_test(E26_rasterising_counts_its_gaussians),
        cmocka_unit_test(E21_carries_keep_their_type),
        cmocka_unit_test(E24_scans_over_nothing_keep_their_start),
        cmocka_unit_test(E23_nested_runs_disturb_nobody),
        cmocka_unit_test(E22_sums_and_slices_of_dying_values),
        cmocka_unit_test(E25_sampling_goes_on_from_run_to_run),
        cmocka_unit_test(S23_what_ends_others_is_refused),
    };
    return cmocka_run_group_tests_name("listed defects, compiled", tests, NULL, NULL);
}
