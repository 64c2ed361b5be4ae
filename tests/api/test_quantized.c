/* SPDX-License-Identifier: Apache-2.0
 * Models quantised by pairs of QuantizeLinear and DequantizeLinear: convolutions run on bytes, and
 * round and saturate as the pairs say. */
#include "ways.h"

/* Ties go to even, what does not fit is cut off, every channel has its own scale and zero points
 * count on all sides. All scales are powers of two: f32 makes no error of its own. */
static void ties_and_saturation(void **state)
{
    (void)state;
    static const char graph[] = "in %x : u8[1,1,1,8]\n"
                                "const %xs : f32[] = [0.5]\nconst %xz : u8[] = [128]\n"
                                "const %w : i8[2,1,1,1] = [3, -96]\n"
                                "const %ws : f32[2] = [0.5, 2.0]\nconst %wz : i8[2] = [1, 0]\n"
                                "const %b : i32[2] = [1, 0]\nconst %bs : f32[2] = [0.25, 1.0]\n"
                                "const %ys : f32[] = [1.0]\nconst %yz : u8[] = [10]\n"
                                "%xf = DequantizeLinear(%x, %xs, %xz) @dx\n"
                                "%wf = DequantizeLinear(%w, %ws, %wz) axis=0 @dw\n"
                                "%bf = DequantizeLinear(%b, %bs) axis=0 @db\n"
                                "%c = Conv(%xf, %wf, %bf) kernel_shape=[1,1] @conv\n"
                                "%y = QuantizeLinear(%c, %ys, %yz) @q\nout %y";
    /* Channel 0: (x − 128)·2·0.25 + 0.25; channel 1: −(x − 128)·96. */
    static const double x[8] = {128, 129, 130, 131, 127, 255, 0, 120};
    double want[16];
    for (int i = 0; i < 8; i++) {
        double v[2] = {(x[i] - 128) * 0.5 + 0.25, -(x[i] - 128) * 96};
        for (int k = 0; k < 2; k++) {
            double q = nearbyint(v[k]) + 10;
            want[8 * k + i] = q < 0 ? 0 : q > 255 ? 255 : q;
        }
    }
    ways_expect(graph, LISTS(((ways_values){8, x})), LISTS(((ways_values){16, want})), 0);
}

/* The result x·w of 0.5, 1.5, 2.5 and −0.5, −1.5, −2.5 falls on even numbers. */
static void halves_fall_on_even_numbers(void **state)
{
    (void)state;
    static const char graph[] = "in %x : i8[1,1,1,6]\n"
                                "const %xs : f32[] = [0.5]\n"
                                "const %w : i8[1,1,1,1] = [1]\n"
                                "const %ws : f32[] = [1.0]\nconst %wz : i8[] = [0]\n"
                                "const %ys : f32[] = [1.0]\nconst %yz : i8[] = [0]\n"
                                "%xf = DequantizeLinear(%x, %xs) @dx\n"
                                "%wf = DequantizeLinear(%w, %ws, %wz) @dw\n"
                                "%c = Conv(%xf, %wf) @conv\n"
                                "%y = QuantizeLinear(%c, %ys, %yz) @q\nout %y";
    ways_expect(graph, LISTS(L(1, 3, 5, -1, -3, -5)), LISTS(L(0, 2, 2, 0, -2, -2)), 0);
}

/* Padding is the real value 0, that is the zero point, and not the byte 0. */
static void padding_is_the_zero_point(void **state)
{
    (void)state;
    static const char graph[] =
        "in %x : u8[1,1,2,2]\n"
        "const %xs : f32[] = [1.0]\nconst %xz : u8[] = [100]\n"
        "const %w : i8[1,1,3,3] = [1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
        "const %ws : f32[] = [1.0]\nconst %ys : f32[] = [1.0]\nconst %yz : u8[] = [5]\n"
        "%xf = DequantizeLinear(%x, %xs, %xz) @dx\n"
        "%wf = DequantizeLinear(%w, %ws) @dw\n"
        "%c = Conv(%xf, %wf) pads=[1,1,1,1] @conv\n"
        "%r = Relu(%c) @relu\n"
        "%y = QuantizeLinear(%r, %ys, %yz) @q\nout %y";
    ways_expect(graph, LISTS(L(101, 102, 103, 104)), LISTS(L(15, 15, 15, 15)), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ties_and_saturation),
        cmocka_unit_test(halves_fall_on_even_numbers),
        cmocka_unit_test(padding_is_the_zero_point),
    };
    return cmocka_run_group_tests_name("quantised models", tests, NULL, NULL);
}
