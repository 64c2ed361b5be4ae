/* SPDX-License-Identifier: Apache-2.0
 * Recipes of specimens (see specimen.h) and first opsets, by row. */
#include <string.h>

#include "op/specimen.h"

typedef struct recipe {
    const char *domain, *name;
    int32_t first_opset;
    const char *text; /* NULL: needs subgraphs, files or tables; tests of its own make them */
} recipe;

static const recipe recipes[] = {
    {"", "Add", 1, "T~ T~"},
    {"", "Sub", 1, "T~ T~"},
    {"", "Mul", 1, "T~ T~"},
    {"", "Div", 1, "T~ T~"},
    {"", "Mod", 10, "T~ T~ .fmod=0|1"},
    {"", "Pow", 1, "T~ T~"},
    {"", "PRelu", 1, "T~ T~"},
    {"", "BitwiseAnd", 18, "T~ T~"},
    {"", "BitwiseOr", 18, "T~ T~"},
    {"", "BitwiseXor", 18, "T~ T~"},
    {"", "BitShift", 11, "T~ T~ .direction=LEFT|RIGHT"},
    {"", "Max", 1, "T~ T~ ?T~"},
    {"", "Min", 1, "T~ T~ ?T~"},
    {"", "Sum", 1, "T~ T~ ?T~"},
    {"", "Mean", 1, "T~ T~ ?T~"},
    {"", "Attention", 23,
     "T[b,H,s,D] T[b,H,t,D] T[b,H,t,D] ?T[s,t] .is_causal=0|1 || T[b,4,s,D] "
     "T[b,2,t,D] T[b,2,t,D] .softcap=2.0 #1 || T[b,s,4D] T[b,t,2D] T[b,t,2D] "
     ".q_num_heads=4 .kv_num_heads=2 .scale=0.5 #1 || T[b,H,s,D] T[b,H,t,D] "
     "T[b,H,t,D] bool[s,t] #1"},
    {"ai.onnx.preview", "FlexAttention", 1, "T[b,H,s,D] T[b,H,t,D] T[b,H,t,D]"},
    {"", "ArgMax", 1, "T+ .axis=@ .keepdims=0|1 .select_last_index=0|1"},
    {"", "ArgMin", 1, "T+ .axis=@ .keepdims=0|1 .select_last_index=0|1"},
    {"", "Hardmax", 1, "T+ .axis=@"},
    {"", "TopK", 1, "T[a,N] i64[1]!<N+1 .largest=0|1 .sorted=1 || T[N,b] i64[1]!<N+1 .axis=0"},
    {"", "CumSum", 11, "T+ i32|i64[]!@ .exclusive=0|1 .reverse=0|1"},
    {"", "CumProd", 26, "T+ i32|i64[]!@ .exclusive=0|1 .reverse=0|1"},
    {"tacit", "Block", 1, "T[n,C,h,w] || T[n,20,h,w]"},
    {"tacit", "Unblock", 1, "T[n,1,h,w,16] .channels={C} || T[n,2,h,w,16] .channels=20"},
    {"tacit", "BlockedConv", 1,
     "T[n,1,H+1,W+1,16] T[16,16,2,2] ?T[16] ?T[n,1,H,W,16] .channels=16 "
     ".activation=none|relu || T[n,3,h+3,w+3] T[16,3,3,3] ?T[16] .strides=(1,1)|(2,2) "
     "|| T[n,1,h+2,w+2,16] T[16,1,3,3] ?T[16] .channels=16 .group=16 .pads=(1,1,1,1)"},
    {"tacit", "BlockedPool", 1,
     "T[n,1,h+3,w+3,16] .channels=16 .kernel_shape=(2,2) .strides=(1,1)|(2,2) "
     ".mode=max|average"},
    {"", "Cast", 1, "T* .to=%type"},
    {"", "CastLike", 15, "T* %[]"},
    {"", "BitCast", 26, "T* .to=%type|%T"},
    {"", "Equal", 1, "T~ T~"},
    {"", "Less", 1, "T~ T~"},
    {"", "LessOrEqual", 12, "T~ T~"},
    {"", "Greater", 1, "T~ T~"},
    {"", "GreaterOrEqual", 12, "T~ T~"},
    {"", "And", 1, "T~ T~"},
    {"", "Or", 1, "T~ T~"},
    {"", "Xor", 1, "T~ T~"},
    {"", "Not", 1, "T*"},
    {"", "IsNaN", 9, "T*"},
    {"", "IsInf", 10, "T*"},
    {"", "Where", 9, "bool~ T~ T~"},
    {"tacit", "Complex", 1, "T~ T~"},
    {"tacit", "Real", 1, "T*"},
    {"tacit", "Imag", 1, "T*"},
    {"tacit", "NormSq", 1, "T*"},
    {"tacit", "Conj", 1, "T*"},
    {"tacit", "NormSqGrad", 1, "T* f32* || T* f64*"},
    {"", "MatMul", 1, "T[~,m,k] T[~,k,n] || T[k] T[*,k,n] || T[*,m,k] T[k] || T[k] T[k]"},
    {"", "Gemm", 1,
     "T[m,k] T[k,n] ?T[n] || T[k,m] T[n,k] ?T[m,n] .transA=1 .transB=1 .alpha=0.5 "
     ".beta=2.0 || T[m,k] T[k,n] T[]"},
    {"", "MatMulInteger", 10, "u8|i8[~,m,k] u8[~,k,n] || T[~,m,k] T[~,k,n] ?T[] ?T[]"},
    {"", "Det", 11, "T[*,m,m]"},
    {"com.microsoft", "Gelu", 1, "T*"},
    {"com.microsoft", "BiasGelu", 1, "T[*,n] T[n]"},
    {"com.microsoft", "FastGelu", 1, "T[*,n] ?T[n]"},
    {"com.microsoft", "QuickGelu", 1, "T*"},
    {"com.microsoft", "SkipLayerNormalization", 1, "T[b,s,H] T[b,s,H] T[H] ?T[H] ?T[H] #1"},
    {"com.microsoft", "SkipSimplifiedLayerNormalization", 1, "T[b,s,H] T[b,s,H] T[H] ?T[H] #1"},
    {"com.microsoft", "EmbedLayerNormalization", 1,
     "i32[b,s]<V i32[b,s]<G T[V,H] T[8,H] T[G,H] T[H] T[H] ?i32[b,s]<2 #2"},
    {"", "SimplifiedLayerNormalization", 1, "T[*,h] T[h] #1"},
    {"com.microsoft", "Attention", 1,
     "T[b,s,2H] T[2H,6H] T[6H] .num_heads=2 .?unidirectional=1 #1"},
    {"com.microsoft", "MultiHeadAttention", 1, "T[b,s,2H] T[b,t,2H] T[b,t,2H] .num_heads=2 #1"},
    {"com.microsoft", "RotaryEmbedding", 1,
     "T[b,s,4D] i64[b,s]<8 T[8,D] T[8,D] .num_heads=2 .interleaved=0|1"},
    {"com.microsoft", "GroupQueryAttention", 1,
     "T[B,S,8D] T[B,S,4D] T[B,S,4D] - - i32[B]=S-1 i32[]!=S .num_heads=4 "
     ".kv_num_heads=2 #3 || T[B,1,8D] T[B,1,4D] T[B,1,4D] T[B,2,P,2D] T[B,2,P,2D] i32[B]=P "
     "i32[]!=P+1 T[16,D] T[16,D] .num_heads=4 .kv_num_heads=2 .do_rotary=1 #3"},
    {"com.microsoft", "FusedMatMul", 1,
     "T[~,m,k] T[~,k,n] .alpha=0.5 || T[*,k,m] T[*,n,k] .transA=1 .transB=1"},
    {"com.microsoft", "MatMulNBits", 1,
     "T[b,m,32] u8[N,2,8] T[2N] .K=32 .N={N} .bits=4 .block_size=16"},
    {"", "If", 1, NULL},
    {"", "Loop", 1, NULL},
    {"", "Scan", 8, NULL},
    {"tacit", "BatchedScan", 1, NULL},
    {"tacit", "CachedAttention", 1, NULL}, /* writes into its inputs */
    {"tacit", "GrowCache", 1, "T[B,H,P,D] T[B,H,S,D] i64[B]<P+1"},
    {"", "Conv", 1,
     "T[n,C,h+3,w+3] T[M,C,2,2] ?T[M] .pads=(1,0,0,1)|(0,0,0,0) .strides=(1,1)|(2,1) "
     ".dilations=(1,1)|(2,2) || T[n,2C,h+3,w+3] T[2M,C,3,3] .group=2 "
     ".auto_pad=SAME_UPPER|SAME_LOWER|VALID || T[n,C,l+2] T[M,C,3] ?T[M] .pads=(1,1) "
     "|| T[n,C,h+3,w+3] T[C,1,3,3] ?T[C] .group={C} .pads=(1,1,1,1) || "
     "T[n,C,d+1,h+1,w+1] T[M,C,1,2,2] .pads=(0,1,0,0,0,1)"},
    {"", "ConvInteger", 10,
     "T[n,C,h+3,w+3] T[M,C,2,2] ?T[] ?T[] .pads=(1,0,0,1) || u8[n,2C,h+3,w+3] T[2M,C,3,2]! ?u8[] "
     "?T[2M]! .group=2 .strides=(1,2) .dilations=(1,2)"},
    {"", "ConvTranspose", 1,
     "T[n,C,h+1,w+1] T[C,M,2,3] ?T[M] .strides=(1,1)|(2,2) .pads=(0,0,0,0)|(0,1,0,0) "
     "|| T[n,2C,l+1] T[2C,M,2] .group=2 .strides=(2)"},
    {"", "DeformConv", 19, "T[n,C,H+1,W+1] T[M,C,2,2] T[n,8,H,W] ?T[M] ?T[n,4,H,W]"},
    {"", "Col2Im", 18, "T[n,4C,12] i64[2]!=(4,5) i64[2]!=(2,2)"},
    {"", "Einsum", 12,
     "T[i,j] T[j,k] .equation=ij,jk->ik || T[b,i,j] T[b,j,k] .equation=bij,bjk->bik "
     "|| T[i,i] .equation=ii->i || T[i,j] .equation=ij->ji || T[i,j] T[i,j] "
     ".equation=ij,ij-> || T[*,i,j] T[*,j,k] .equation=...ij,...jk->...ik || T[i] "
     "T[j] T[k] .equation=i,j,k->kij"},
    {"tacit", "Function", 1, NULL},
    {"tacit", "MatMul", 1,
     "T[*,m,k] T[k,n] ?T[n] ?T[*,m,n] "
     ".activation=none|relu|gelu|silu|sigmoid|tanh|gelu_tanh .activation_last=0|1 || "
     "T[~,k,m] T[~,n,k] .trans_a=1 .trans_b=1 .alpha=0.5"},
    {"tacit", "Conv", 1,
     "T[n,C,H+2,W+2] T[M,C,3,3] ?T[M] ?T[n,M,H,W] .activation=none|relu|silu "
     ".activation_last=0|1 || T[n,2C,H+1,W+1] T[2M,C,2,2] ?T[2M] .group=2"},
    {"tacit", "Gated", 1, "T* T* .activation=silu|gelu|sigmoid|relu"},
    {"tacit", "Attention", 1,
     "T[b,H,s,D] T[b,H,t,D] T[b,H,t,D] ?T[s,t] .scale=0.5 .causal=0|1 "
     ".out_layout=bhsd|bshd || T[b,4,s,D] T[b,2,t,D] T[b,2,t,D] .scale=1.0 "
     ".softcap=2.0 .causal=1 .window=2|0 || T[b,H,s,D] T[b,H,t,D] T[b,H,t,D] "
     "bool[b,1,s,t] .scale=0.5"},
    {"tacit", "Norm", 1, "T[*,h] ?T[h] ?T[h] ?T[*,h] .rms=0|1 .epsilon=0.00001"},
    {"tacit", "Elementwise", 1,
     "f32~ f32~ .program=(0,0,256,257,0,2,1,0,256,0) || f32~ f32~ f32~ "
     ".program=(2,0,256,257,0,1,0,0,258,0,5,1,0,257,0)"},
    {"", "Gather", 1,
     "T[P,q,r] i32|i64[a,b]%P .axis=0 || T[p,Q,r] i64[a]%Q .axis=1|-2 || T[p,Q] "
     "i64[]%Q .axis=-1 || T[P] i32[]<P"},
    {"", "GatherElements", 11, "T[P,q] i32|i64[P,q]%P .axis=0 || T[p,Q,r] i64[p,a,r]%Q .axis=1|-2"},
    {"", "GatherND", 11,
     "T[P,P,r] i64[a,2]%P || T[P,q] i64[a,b,1]%P || T[b,P,q] i64[b,a,1]%P "
     ".batch_dims=1"},
    {"", "Constant", 1, ".value=%tensor || .value_ints=(1,2,3) || .value_float=0.5"},
    {"", "ConstantOfShape", 9, "i64[3]!<4 .value=%tensor || i64[0]! .value=%tensor || i64[2]<3"},
    {"", "Range", 11, "T[]!=0 T[]!=a T[]!=1 || T[]!=a T[]!=1 T[]!=2 || T[]=1 T[]=c T[]=2"},
    {"", "EyeLike", 9, "T[m,n] .k=0|1|-1"},
    {"", "OneHot", 9, "i32|i64[a,b]%5 i64[]!=5 T[2] .axis=-1|0|1"},
    {"", "Trilu", 14, "T[*,m,n] ?i64[]!%3 .upper=0|1"},
    {"", "ImageDecoder", 20, NULL},
    {"tacit", "QMatMul", 1,
     "i8[m,k] i8[k,n] ?i32[n] .multiplier=0.05 .x_zero=1 .w_zero=-2 .y_zero=3"},
    {"tacit", "IntMatMul", 1,
     "u8[m,k] T[k,n] f32[]> ?u8[] f32[]> ?T[] ?f32[n] || T[b,m,k] T[k,n]! f32[]> ?T[] f32[n]> "
     "?T[n]"},
    {"tacit", "IntConv", 1,
     "T[n,C,h+2,w+2] T[M,C,2,2]! f32[]> ?T[] f32[M]!> ?T[M]! ?f32[M]! .activation=none|relu || "
     "u8[n,2C,h+3,w+3] T[2M,C,3,3]! f32[]> ?u8[] f32[]!> ?T[]! ?f32[2M]! f32[]!> T[]! .group=2 "
     ".pads=(1,1,1,1) .strides=(1,1)|(2,2) || T[n,C,h+2,w+2] T[C,1,3,3]! f32[]> T[] f32[C]!> "
     "T[C]! f32[C]! f32[]!> T[]! .group={C} .pads=(1,0,1,1) .activation=none|relu || "
     "T[n,h+2,w+2,C] i8[M,C,2,2]! f32[]!> T[]! f32[M]!> - ?f32[M]! f32[]!> T[]! .inside=3 "
     ".pads=(0,0,0,0)|(1,1,1,1) .activation=none|relu || u8[n,C,h+2,w+2] i8[M,C,1,1]! f32[]!> "
     "u8[]! f32[]!> - f32[M]! f32[]!> T[]! .inside=2 || u8[n,h+2,w+2,C] i8[C,1,3,3]! f32[]!> "
     "u8[]! f32[C]!> - f32[C]! f32[]!> T[]! .group={C} .pads=(1,1,1,1) .inside=3"},
    {"tacit", "IntAdd", 1,
     "T[n,c,h,w] T[n,c,h,w] f32[]!> T[]! f32[]!> T[]! f32[]!> T[]! .activation=none|relu"},
    {"tacit", "IntMul", 1,
     "T[n,c,h,w] T[n,c,h,w] f32[]!> T[]! f32[]!> T[]! f32[]!> T[]! || T[n,c,h,w] T[c,1,1] f32[]!> "
     "T[]! f32[]!> T[]! f32[]!> T[]!"},
    {"tacit", "IntMean", 1, "T[n,C,H,W] f32[]!> T[]! f32[]!> T[]! .inside=0|1"},
    {"tacit", "IntMaxPool", 1,
     "T[n,h+3,w+3,C] .kernel_shape=(2,2)|(3,3) .strides=(1,1)|(2,2) .pads=(0,0,0,0)|(1,1,1,1)"},
    {"tacit", "QConv", 1,
     "i8[n,C,h+2,w+2] i8[M,C,2,2] ?i32[M] .multiplier=0.05 .x_zero=1 .y_zero=-3"},
    {"tacit", "FakeQuantize", 1, "T* .bits=8|4|2 #1 || T[C,d] .bits=8 .axis=0 #1"},
    {"tacit", "Solve", 1, "T[N,N] T[N] || T[N,N] T[N,k] || T[b,N,N] T[b,N,k]"},
    {"", "NegativeLogLikelihoodLoss", 12,
     "T[n,C] i32|i64[n]<C ?T[C]> .reduction=none|mean|sum #1 || T[N,C,d] i64[N,d]<C "
     "?T[C]> .reduction=none|mean|sum #1"},
    {"", "SoftmaxCrossEntropyLoss", 12,
     "T[n,C] i32|i64[n]<C ?T[C]> .reduction=none|mean|sum #1 || T[N,C,d] i64[N,d]<C "
     "?T[C]> .reduction=none|mean|sum #1"},
    {"ai.onnx.preview.training", "Adagrad", 1,
     "T[]> i64[]<5 T* T* T*> .norm_coefficient=0.01 .epsilon=0.001 #2"},
    {"ai.onnx.preview.training", "Momentum", 1,
     "T[]> i64[]<5 T* T* T* .alpha=0.9 .beta=0.1 .mode=standard|nesterov "
     ".norm_coefficient=0.01 #2"},
    {"ai.onnx.preview.training", "Adam", 1,
     "T[]> i64[]<5 T* T* T* T*> .alpha=0.9 .beta=0.99 .epsilon=0.001 "
     ".norm_coefficient=0.01 #3"},
    {"ai.onnx.preview.training", "Gradient", 1, NULL},
    {"", "Sqrt", 1, "T*"},
    {"", "Reciprocal", 1, "T*"},
    {"", "Exp", 1, "T*"},
    {"", "Log", 1, "T*"},
    {"", "Sin", 7, "T*"},
    {"", "Cos", 7, "T*"},
    {"", "Tan", 7, "T*"},
    {"", "Asin", 7, "T*"},
    {"", "Acos", 7, "T*"},
    {"", "Atan", 7, "T*"},
    {"", "Sinh", 9, "T*"},
    {"", "Cosh", 9, "T*"},
    {"", "Tanh", 1, "T*"},
    {"", "Asinh", 9, "T*"},
    {"", "Acosh", 9, "T*"},
    {"", "Atanh", 9, "T*"},
    {"", "Erf", 9, "T*"},
    {"", "Sigmoid", 1, "T*"},
    {"", "Softplus", 1, "T*"},
    {"", "Softsign", 1, "T*"},
    {"", "HardSwish", 14, "T*"},
    {"", "Mish", 18, "T*"},
    {"", "Ceil", 1, "T*"},
    {"", "Floor", 1, "T*"},
    {"", "Round", 11, "T*"},
    {"", "Abs", 1, "T*"},
    {"", "Neg", 1, "T*"},
    {"", "Sign", 9, "T*"},
    {"", "Relu", 1, "T*"},
    {"", "BitwiseNot", 18, "T*"},
    {"ai.onnx.ml", "LabelEncoder", 1,
     "i64* .keys_int64s=(1,2) .values_int64s=(5,6) .default_int64=-1 || string* "
     ".keys_strings=[a,bc] .values_int64s=(5,6)"},
    {"ai.onnx.ml", "Binarizer", 1, "T* .threshold=0.5"},
    {"ai.onnx.ml", "ArrayFeatureExtractor", 1, "T[a,N] i64[1,k]<N"},
    {"ai.onnx.ml", "TreeEnsemble", 5, NULL},
    {"ai.onnx.ml", "TreeEnsembleRegressor", 1,
     "T[a,2] .nodes_treeids=(0,0,0) .nodes_nodeids=(0,1,2) .nodes_featureids=(1,0,0) "
     ".nodes_modes=[BRANCH_LEQ,LEAF,LEAF] .nodes_values=(0.5,0.0,0.0) .nodes_truenodeids=(1,0,0) "
     ".nodes_falsenodeids=(2,0,0) .target_treeids=(0,0) .target_nodeids=(1,2) .target_ids=(0,0) "
     ".target_weights=(1.5,-2.0) .base_values=(0.25) || T[2] .nodes_treeids=(3,3,3) "
     ".nodes_nodeids=(7,8,9) .nodes_featureids=(1,0,0) .nodes_modes=[BRANCH_EQ,LEAF,LEAF] "
     ".nodes_values=(1.0,0.0,0.0) .nodes_truenodeids=(8,0,0) .nodes_falsenodeids=(9,0,0) "
     ".target_treeids=(3,3) .target_nodeids=(8,9) .target_ids=(0,1) .target_weights=(1.5,-2.0) "
     ".n_targets=2 .aggregate_function=SUM|AVERAGE|MIN|MAX .post_transform=NONE|SOFTMAX"},
    {"ai.onnx.ml", "TreeEnsembleClassifier", 1,
     "T[a,2] .nodes_treeids=(0,0,0) .nodes_nodeids=(0,1,2) .nodes_featureids=(1,0,0) "
     ".nodes_modes=[BRANCH_GT,LEAF,LEAF] .nodes_values=(0.5,0.0,0.0) .nodes_truenodeids=(1,0,0) "
     ".nodes_falsenodeids=(2,0,0) .class_treeids=(0,0) .class_nodeids=(1,2) .class_ids=(0,0) "
     ".class_weights=(1.5,-2.0) .classlabels_int64s=(4,7) .post_transform=NONE|LOGISTIC #2"},
    {"ai.onnx.ml", "LinearRegressor", 1,
     "T[a,3] .coefficients=(0.5,-1.0,0.25) .intercepts=(0.5) || T[2] "
     ".coefficients=(0.5,-1.0,0.25,2.0) .targets=2 .post_transform=NONE|LOGISTIC|SOFTMAX_ZERO"},
    /* Scores that are NaN have no winner that kernels and evaluators agree on. */
    {"ai.onnx.ml", "LinearClassifier", 1, NULL},
    {"ai.onnx.ml", "SVMRegressor", 1,
     "T[a,2] .n_supports=2 .support_vectors=(0.5,1.0,-1.0,2.0) .coefficients=(1.0,-0.5) "
     ".rho=(0.5) .kernel_type=LINEAR|POLY|RBF|SIGMOID .kernel_params=(0.5,0.25,2.0) || T[a,2] "
     ".coefficients=(1.0,-0.5) .rho=(0.5) .one_class=0|1"},
    {"ai.onnx.ml", "SVMClassifier", 1,
     "T[a,2] .vectors_per_class=(1,2) .support_vectors=(0.5,1.0,-1.0,2.0,0.0,1.0) "
     ".coefficients=(1.0,-0.5,0.25) .rho=(0.5) .kernel_type=LINEAR|POLY|RBF|SIGMOID "
     ".kernel_params=(0.5,0.25,2.0) .classlabels_ints=(4,7) .post_transform=NONE|LOGISTIC #2"},
    {"ai.onnx.ml", "Scaler", 1, "T* .offset=(0.5) .scale=(2.0) || T[a,2] .scale=(2.0,-1.0)"},
    {"ai.onnx.ml", "Normalizer", 1, "T[a,N] .norm=MAX|L1|L2 || T[N] .norm=L2"},
    {"ai.onnx.ml", "Imputer", 1,
     "T* .imputed_value_floats=(1.5) .imputed_value_int64s=(3) .replaced_value_float=1.0 "
     ".replaced_value_int64=1"},
    {"ai.onnx.ml", "OneHotEncoder", 1,
     "T[a,b] .cats_int64s=(0,1,2) .zeros=1 || string[a,b] .cats_strings=[a,bc]"},
    {"ai.onnx.ml", "FeatureVectorizer", 1, "T[a,B] T[a,C] .inputdimensions=(2,3)"},
    {"ai.onnx.ml", "ZipMap", 1, NULL},
    {"ai.onnx.ml", "DictVectorizer", 1, NULL},
    {"ai.onnx.ml", "CastMap", 1, NULL},
    {"ai.onnx.ml", "CategoryMapper", 1,
     "i64* .cats_strings=[a,bc] .cats_int64s=(0,1) || string* .cats_strings=[a,bc] "
     ".cats_int64s=(0,1)"},
    {"", "Identity", 1, "T*"},
    {"", "Reshape", 1,
     "T[a,B,c] i64[2]!=(a,Bc) || T[A,B,C] i64[3]!=(0,-1,C) || T* i64[1]!=-1 || T[a,B] "
     "i64[2]=(B,a)"},
    {"", "Flatten", 1, "T+ .axis=@"},
    {"", "Squeeze", 1, "T[1,a,1,b] i64[2]!=(0,-2) || T[1,a,1] || T[1]"},
    {"", "Unsqueeze", 1, "T[a,b] i64[2]!=(0,2) || T[] i64[1]!=0 || T[a,b,c] i64[2]!=(-1,1)"},
    {"", "Transpose", 1, "T* .perm=%perm || T*"},
    {"", "Expand", 8,
     "T[a,1,b] i64[4]!=(2,a,3,b) || T[1] i64[2]!=(a,b) || T[a,b] i64[1]!=1 || T[] "
     "i64[3]!=(2,a,1)"},
    {"", "Shape", 1, "T+ .?start=1 .?end=-1 || T*"},
    {"", "Size", 1, "T*"},
    {"", "NonMaxSuppression", 10,
     "f32[1,5,4]> f32[1,2,5] i64[]=3 f32[]> f32[]> .center_point_box=0|1"},
    {"", "LeakyRelu", 1, "T*"},
    {"", "Elu", 1, "T*"},
    {"", "Selu", 1, "T*"},
    {"", "Celu", 12, "T*"},
    {"", "ThresholdedRelu", 10, "T*"},
    {"", "HardSigmoid", 1, "T*"},
    {"", "Swish", 24, "T*"},
    {"", "Gelu", 20, "T* .approximate=none|tanh"},
    {"", "Shrink", 9, "T*"},
    {"", "Clip", 1, "T* ?T[] ?T[] || T* T[]=-1 T[]=2"},
    {"", "BatchNormalization", 1,
     "T[n,C,h,w] T[C] T[C] T[C] T[C]> .epsilon=0.001 #1 || T[n,C] T[C] T[C] T[C] "
     "T[C]> #1 || T[N,C,L] T[C] T[C] T[C] T[C]> .training_mode=1 #3"},
    {"", "LayerNormalization", 17,
     "T[a,b,h] T[h] ?T[h] || T[a,B,h] T[B,h] ?T[B,h] .axis=1 || T[*,h] T[h] ?T[h] #1"},
    {"", "RMSNormalization", 23, "T[a,b,h] T[h] || T[a,B,h] T[B,h] .axis=1 || T[*,h] T[h]"},
    {"", "InstanceNormalization", 1, "T[n,C,h,w] T[C] T[C] || T[n,C,L] T[C] T[C]"},
    {"", "GroupNormalization", 18,
     "T[n,2C,h,w] T[2C] T[2C] .num_groups=2 || T[n,C,L] T[C] T[C] .num_groups={C}|1"},
    {"", "Softmax", 1, "T+ .axis=@"},
    {"", "LogSoftmax", 1, "T+ .axis=@"},
    {"", "LpNormalization", 1, "T+ .axis=@ .p=1|2"},
    {"", "MeanVarianceNormalization", 9, "T[n,c,h,w] || T[n,c,h,w] .axes=(0,2)"},
    {"", "LRN", 1, "T[n,C,h,w] .size=3|1 .alpha=0.1 .bias=2.0 || T[n,C,l] .size=5"},
    {"", "Pad", 1,
     "T[a,b] i64[4]!=(1,0,2,1) ?T[] .mode=constant || T[A+2,B+2] i64[4]!=(1,0,2,1) "
     ".mode=reflect|edge|wrap || T[A+2,B+2] i64[4]!=(-1,2,-1,-1) ?T[] || T[a,B+2,c] "
     "i64[2]!=(1,1) ?T[] i64[1]!=1 .mode=constant|edge"},
    {"", "CenterCropPad", 18, "T[a,b] i64[2]!=(3,2) || T[a,b,c] i64[1]!=3 .axes=(1)"},
    {"", "DepthToSpace", 1, "T[n,4C,h,w] .blocksize=2 .mode=DCR|CRD"},
    {"", "SpaceToDepth", 1, "T[n,c,2h,2w] .blocksize=2"},
    {"", "ReverseSequence", 10,
     "T[S,B,d] i64[B]<S+1 .time_axis=0 .batch_axis=1 || T[B,S] i64[B]<S+1 "
     ".time_axis=1 .batch_axis=0"},
    {"tacit", "Checkpoint", 1, "T*"},
    {"tacit", "Later", 1, "T* T~"},
    {"tacit", "AdamStep", 1,
     "T* T* T*> T* f32[]> f32[]> ?f32[] ?bool[] .decoupled=0|1 .weight_decay=0.1 #3"},
    {"", "MaxPool", 1,
     "T[n,c,h+2,w+3] .kernel_shape=(2,3) .strides=(1,1)|(2,2) "
     ".pads=(0,0,0,0)|(1,1,0,1) .ceil_mode=0|1 || T[n,c,l+3] .kernel_shape=(2) "
     ".dilations=(2) || T[n,c,h+2,w+2] .kernel_shape=(2,2) "
     ".auto_pad=SAME_UPPER|SAME_LOWER"},
    {"", "AveragePool", 1,
     "T[n,c,h+2,w+3] .kernel_shape=(2,3) .strides=(1,1)|(2,2) "
     ".pads=(0,0,0,0)|(1,1,0,1) .ceil_mode=0|1 .count_include_pad=0|1 || T[n,c,l+3] "
     ".kernel_shape=(2) .dilations=(2)"},
    {"", "LpPool", 1,
     "T[n,c,h+2,w+3] .kernel_shape=(2,3) .p=1|2|3 .strides=(1,1)|(2,2) || T[n,c,l+2] "
     ".kernel_shape=(2)"},
    {"", "GlobalAveragePool", 1, "T[n,c,H,W] || T[n,c,L]"},
    {"", "GlobalMaxPool", 1, "T[n,c,H,W] || T[n,c,L]"},
    {"", "GlobalLpPool", 1, "T[n,c,H,W] || T[n,c,L]"},
    {"", "MaxRoiPool", 1, "T[N,c,4,5] T[R,5]=0 .pooled_shape=(2,2)"},
    {"", "MaxUnpool", 9, "T[n,c,2,2] i64[n,c,2,2]<16 .kernel_shape=(2,2) .strides=(2,2)"},
    {"tacit", "MaxPoolGrad", 1, "T[n,c,H+1,W+1] T[n,c,H,W] .kernel_shape=(2,2)"},
    {"tacit", "AveragePoolGrad", 1, "T[n,c,H+1,W+1] T[n,c,H,W] .kernel_shape=(2,2)"},
    {"", "QuantizeLinear", 10,
     "T* T[]> ?u8|i8|u16|i16|i4|f8e4m3fn[] || T[a,B] T[B]> ?i8[B] .axis=1 || T[a,4] "
     "T[a,2]> ?u8[a,2] .axis=1 .block_size=2"},
    {"", "DequantizeLinear", 10,
     "T* f32|f16[]> ?T[] || T[a,B] f32[B]> ?T[B] .axis=1 || T[a,4] f32[a,2]> ?T[a,2] "
     ".axis=1 .block_size=2"},
    {"", "DynamicQuantizeLinear", 11, "T*"},
    {"", "QLinearMatMul", 10,
     "T[m,k] f32[]> T[] T[k,n] f32[]> T[] f32[]> T[] || T[m,k] f32[]> T[] T[k,n] f32[]!> T[]! "
     "f32[]!> T[]!"},
    {"", "QLinearConv", 10,
     "T[n,C,h+2,w+2] f32[]> T[] T[M,C,2,2] f32[]> T[] f32[]> T[] ?i32[M] || u8[n,C,h+2,w+2] f32[]> "
     "u8[] T[M,C,3,3]! f32[M]!> T[M]! f32[]!> T[]! ?i32[M]! .pads=(1,1,1,1) || T[n,C,h+2,w+2] "
     "f32[]> T[] T[C,1,3,3]! f32[]!> T[]! f32[]!> T[]! ?i32[C]! .group={C} .pads=(1,1,1,1)"},
    {"", "RandomUniform", 1, ".dtype=%T .shape=(2,3) .seed=1.0"},
    {"", "RandomNormal", 1, ".dtype=%T .shape=(2,3) .seed=1.0"},
    {"", "RandomUniformLike", 1, "T* .seed=1.0 || T* .dtype=1 .seed=2.0"},
    {"", "RandomNormalLike", 1, "T* .seed=1.0 || T* .dtype=1 .seed=2.0"},
    {"", "Bernoulli", 15, "T*=0.5 .seed=1.0"},
    {"", "Multinomial", 7, "T[n,C] .sample_size=3 .seed=1.0"},
    {"", "Dropout", 1, "T* ?T[]=0.5 ?bool[] .seed=3"},
    {"tacit", "SelectiveScan", 1, "T[b,s,c] T[b,s,c] T[c,n] T[b,s,n] T[b,s,n] ?T[b,c,n]"},
    {"tacit", "GatedDeltaNet", 1, "T[b,s,h,N] T[b,s,h,N] T[b,s,h,N] T[b,s,h] T[b,s,h] ?T[b,h,N,N]"},
    {"", "ReduceSum", 1,
     "T+ ?i64[1]!@ .keepdims=0|1 || T[a,b,c,d] i64[2]!=(0,2) .keepdims=0|1 || "
     "T[a,b,c] i64[2]!=(-1,1) .keepdims=0|1 || T* .noop_with_empty_axes=0|1"},
    {"", "ReduceMean", 1,
     "T+ ?i64[1]!@ .keepdims=0|1 || T[a,b,c,d] i64[2]!=(0,2) .keepdims=0|1 || "
     "T[a,b,c] i64[2]!=(-1,1) .keepdims=0|1 || T* .noop_with_empty_axes=0|1"},
    {"", "ReduceProd", 1,
     "T+ ?i64[1]!@ .keepdims=0|1 || T[a,b,c,d] i64[2]!=(0,2) .keepdims=0|1 || "
     "T[a,b,c] i64[2]!=(-1,1) .keepdims=0|1 || T* .noop_with_empty_axes=0|1"},
    {"", "ReduceL1", 1,
     "T+ ?i64[1]!@ .keepdims=0|1 || T[a,b,c,d] i64[2]!=(0,2) .keepdims=0|1 || "
     "T[a,b,c] i64[2]!=(-1,1) .keepdims=0|1 || T* .noop_with_empty_axes=0|1"},
    {"", "ReduceL2", 1,
     "T+ ?i64[1]!@ .keepdims=0|1 || T[a,b,c,d] i64[2]!=(0,2) .keepdims=0|1 || "
     "T[a,b,c] i64[2]!=(-1,1) .keepdims=0|1 || T* .noop_with_empty_axes=0|1"},
    {"", "ReduceSumSquare", 1,
     "T+ ?i64[1]!@ .keepdims=0|1 || T[a,b,c,d] i64[2]!=(0,2) .keepdims=0|1 || "
     "T[a,b,c] i64[2]!=(-1,1) .keepdims=0|1 || T* .noop_with_empty_axes=0|1"},
    {"", "ReduceLogSum", 1,
     "T+ ?i64[1]!@ .keepdims=0|1 || T[a,b,c,d] i64[2]!=(0,2) .keepdims=0|1 || "
     "T[a,b,c] i64[2]!=(-1,1) .keepdims=0|1 || T* .noop_with_empty_axes=0|1"},
    {"", "ReduceLogSumExp", 1,
     "T+ ?i64[1]!@ .keepdims=0|1 || T[a,b,c,d] i64[2]!=(0,2) .keepdims=0|1 || "
     "T[a,b,c] i64[2]!=(-1,1) .keepdims=0|1 || T* .noop_with_empty_axes=0|1"},
    {"", "ReduceMax", 1,
     "T+ ?i64[1]!@ .keepdims=0|1 || T[a,b,c,d] i64[2]!=(0,2) .keepdims=0|1 || "
     "T[a,b,c] i64[2]!=(-1,1) .keepdims=0|1 || T* .noop_with_empty_axes=0|1"},
    {"", "ReduceMin", 1,
     "T+ ?i64[1]!@ .keepdims=0|1 || T[a,b,c,d] i64[2]!=(0,2) .keepdims=0|1 || "
     "T[a,b,c] i64[2]!=(-1,1) .keepdims=0|1 || T* .noop_with_empty_axes=0|1"},
    {"", "Resize", 10,
     "T[n,C,H+1,W+1] - f32[4]!=(1,1,2,1.5) .mode=nearest|linear|cubic "
     ".coordinate_transformation_mode=half_pixel|asymmetric|align_corners|pytorch_half_pixel "
     ".nearest_mode=floor|ceil|round_prefer_floor|round_prefer_ceil || T[N,C,H,W] - - "
     "i64[4]!=(N,C,5,3) .mode=nearest|linear .antialias=0|1 || T[n,C,l+1] - f32[1]!=2 "
     ".axes=(2)"},
    {"", "Upsample", 1, "T[n,C,H,W] f32[4]!=(1,1,2,2) .mode=nearest|linear"},
    {"", "RNN", 1,
     "T[s,B,I] T[1,H,I] T[1,H,H] ?T[1,2H] - ?T[1,B,H] .hidden_size={H} "
     ".?direction=reverse || T[s,B,I] T[2,H,I] T[2,H,H] .hidden_size={H} "
     ".direction=bidirectional || T[s,B,I] T[1,H,I]! T[1,H,H]! T[1,2H]! .hidden_size={H} "
     ".activations=Relu|Tanh"},
    {"", "GRU", 1,
     "T[s,B,I] T[1,3H,I] T[1,3H,H] ?T[1,6H] - ?T[1,B,H] .hidden_size={H} "
     ".linear_before_reset=0|1 || T[s,B,I] T[2,3H,I]! T[2,3H,H]! T[2,6H]! - ?T[2,B,H] "
     ".hidden_size={H} .linear_before_reset=0|1 .direction=bidirectional"},
    {"", "LSTM", 1,
     "T[s,B,I] T[1,4H,I] T[1,4H,H] ?T[1,8H] - ?T[1,B,H] ?T[1,B,H] ?T[1,3H] "
     ".hidden_size={H} || T[s,B,I] T[2,4H,I] T[2,4H,H] ?T[2,8H] .hidden_size={H} "
     ".direction=bidirectional || T[B,s,I] T[1,4H,I]! T[1,4H,H]! T[1,8H]! - ?T[B,1,H] ?T[B,1,H] "
     ".hidden_size={H} .layout=1"},
    {"", "RotaryEmbedding", 23,
     "T[b,H,s,2D] T[8,D] T[8,D] i64[b,s]<8 .interleaved=0|1 || T[b,s,4D] T[b,s,D] "
     "T[b,s,D] .num_heads=2"},
    {"", "LinearAttention", 27,
     "T[b,s,4D] T[b,s,2D] T[b,s,2V] - T[b,s,2] T[b,s,2] .q_num_heads=4 "
     ".kv_num_heads=2 || T[b,s,2D] T[b,s,2D] T[b,s,2V] .q_num_heads=2 .kv_num_heads=2 "
     ".update_rule=linear"},
    {"", "CausalConvWithState", 27, "T[b,C,s] T[C,1,3] ?T[C] ?T[b,C,2]"},
    {"", "GridSample", 16,
     "T[n,C,H,W] f32|f64[n,p,q,2] .mode=linear|nearest|cubic "
     ".padding_mode=zeros|border|reflection .align_corners=0|1"},
    {"", "AffineGrid", 20, "T[N,2,3] i64[4]!=(N,1,3,4) .align_corners=0|1"},
    {"", "RoiAlign", 10,
     "T[N,C,5,6] T[R,4] i64[R]<N .output_height=2 .output_width=2 .mode=avg|max "
     ".sampling_ratio=2"},
    {"tacit", "Sample", 1, "T[B,V] .temperature=0.5 .top_k=2|0 .top_p=0.9 .seed=7"},
    {"", "ScatterElements", 11,
     "T[P,q] i32|i64[P,q]%P T[P,q] .axis=0 .reduction=none|add|mul|max|min || "
     "T[p,Q,r] i64[p,a,r]%Q T[p,a,r] .axis=1 .reduction=none|add"},
    {"", "ScatterND", 11,
     "T[P,q] i64[a,1]%P T[a,q] .reduction=none|add|mul|max|min || T[P,P] i64[a,2]%P "
     "T[a]"},
    {"", "TensorScatter", 24, "T[b,h,S+1,d] T[b,h,1,d] ?i64[b]<S .mode=linear|circular"},
    {"tacit", "ScatterAdd", 1, "T[a,d] i64[a]<N .dim={N}"},
    {"", "NonZero", 9, "T*"},
    {"", "Compress", 9, "T[a,N] bool[N] .axis=1 || T* bool[3]"},
    {"", "Unique", 11, "T* .sorted=0|1 || T[a,B] .axis=1"},
    {"", "SequenceEmpty", 11, ".dtype=%T"},
    {"", "SequenceConstruct", 11, "T* T* ?T*"},
    {"", "SequenceAt", 11, "seq* i64[]%2"},
    {"", "SequenceLength", 11, "seq*"},
    {"", "SequenceErase", 11, "seq* ?i64[]%2"},
    {"", "SequenceInsert", 11, "seq* T* ?i64[]%2"},
    {"", "SplitToSequence", 11, "T[a,b] ?i64[]=1 .axis=0|1 .keepdims=0|1"},
    {"", "ConcatFromSequence", 11, "seq[a,b] .axis=0|1 || seq* .axis=0 .new_axis=1"},
    {"", "Optional", 15, "T*"},
    {"", "OptionalGetElement", 15, "T*"},
    {"", "OptionalHasElement", 15, "T*"},
    {"", "SequenceMap", 17, NULL},
    {"", "DFT", 17,
     "T[b,N,1] || T[b,N,2] - i64[]!=1 .inverse=0|1 || T[b,N,1] i64[]!=5 .onesided=1 "
     "|| T[N,c,2] ?i64[]!=3 i64[]!=0"},
    {"", "STFT", 17,
     "T[b,12,1] i64[]!=3 T[4] || T[b,12,1] i64[]!=2 - i64[]!=5 .onesided=0|1 || "
     "T[b,12,2] i64[]!=4 T[4] .onesided=0"},
    {"", "HannWindow", 17,
     "i32|i64[]!=n .periodic=0|1 .output_datatype=%T || i64[]=5 .output_datatype=%T"},
    {"", "HammingWindow", 17,
     "i32|i64[]!=n .periodic=0|1 .output_datatype=%T || i64[]=5 .output_datatype=%T"},
    {"", "BlackmanWindow", 17,
     "i32|i64[]!=n .periodic=0|1 .output_datatype=%T || i64[]=5 .output_datatype=%T"},
    {"", "MelWeightMatrix", 17,
     "i64[]!=3 i64[]!=16 i64[]!=8000 f32[]!=0.0 f32[]!=4000.0 .output_datatype=%T"},
    {"", "Slice", 1,
     "T[A,B,c] i64[2]!=(0,-1) i64[2]!=(9,-9) i64[2]!=(0,1) i64[2]!=(1,-1) || T[a,b] "
     "i32|i64[1]!=1 i64[1]!=3 || T[a,b,c] i64[1]!=-2 i64[1]!=9 i64[1]!=-1 i64[1]!=2 "
     "|| T[a,b] i64[1]=0 i64[1]=2"},
    {"", "Split", 1,
     "T[2a,b] .num_outputs=2 #2 || T[a+3,b] i64[2]!=(1,a+2) #2 || T[a,b+2] "
     "i64[2]!=(2,b) .axis=1 #2"},
    {"", "Concat", 1, "T[a,b] T[c,b] .axis=0 || T[a,b] T[a,c] T[a,d] .axis=-1 || T+ .axis=@"},
    {"", "Tile", 1, "T[a,b] i64[2]!=(2,3) || T[a] i64[1]!=n || T[a,b,c] i64[3]!=(1,2,1)"},
    {"tacit", "Fft", 1, "T[*,2N] .inverse=0|1 .norm=none|backward|forward|ortho"},
    {"tacit", "FftButterflyStage", 1, "T[b,8,2] T[4] T[4] T[4] T[4] .stage=0|1|2"},
    {"tacit", "LogMel", 1, "T[*,8] T[M,3]> .base=10.0|0.0"},
    {"tacit", "SplatProject", 1, "T[n,3] T[n,3]> T[n,4] T[n,1,3] T[20]>"},
    {"tacit", "SplatRasterize", 1,
     "T[n,2]> T[n,3]> T[n]> T[n]> T[n,3]> T[n]> ?T[3] .width=5 .height=4"},
    {"tacit", "SplatRasterizeGrad", 1,
     "T[n,2] T[n,3]> T[n]> T[n]> T[n,3] T[n]> ?T[3] T[3,4,3] ?T[3,4] .width=4 .height=3 #5"},
    {"tacit", "SplatRasterizeTangent", 1,
     "T[n,2] T[n,3]> T[n]> T[n]> T[n,3] T[n]> - T[n,2] T[n,3] T[n,3] T[n] T[3] .width=4 "
     ".height=3 #2"},
    {"tacit", "GaussianSplat", 1,
     "T[n,3] T[n,3]> T[n,4] T[n]> T[n,1,3] T[20]> ?T[3] .width=5 .height=4"},
    {"", "StringConcat", 20, "string~ string~"},
    {"", "StringSplit", 20, "string* .?delimiter=a .?maxsplit=2"},
    {"", "StringNormalizer", 10, "string[A] .case_change_action=LOWER|UPPER|NONE"},
    {"", "RegexFullMatch", 20, "string* .pattern=[ab]*|a.*"},
    {"", "TfIdfVectorizer", 9,
     "i32|i64[8]<6 .mode=TF .max_gram_length=2 .min_gram_length=1 .max_skip_count=0|1 "
     ".ngram_counts=(0,3) .ngram_indexes=(0,1,2,3) .pool_int64s=(2,3,5,5,4) || "
     "string[5] .mode=TF .max_gram_length=2 .min_gram_length=1 .max_skip_count=0 "
     ".ngram_counts=(0,2) .ngram_indexes=(0,1,2) .pool_strings=[a,bc,a,ab]"},
    {"tacit", "Rope", 1, "T[b,s,8] T[6,2] T[6,2] .head_dim=4 .?rotated=2"},
    {"tacit", "AxialRope2d", 1, "T[b,6,8] .head_dim=4 .end_x=3 .end_y=2 .theta=100.0"},
    {"tacit", "LayerNorm2d", 1, "T[n,C,h,w] T[C] T[C]"},
    {"tacit", "BatchNormLast", 1, "T[*,c] T[c] T[c] T[c] T[c]>"},
    {"tacit", "Im2Col", 1, "T[n,c,h+2,w+2] .kernel_shape=(2,2) .strides=(1,1)|(2,2)"},
    {"tacit", "DequantMatMul", 1,
     "T[*,8] i8[8,N] f32[2,N] .scheme=int8 .block=4 .n={N} || T[*,8] u8[4N] f32[2,N] "
     ".scheme=int4 .block=4 .n={N} || T[*,8] u8[8,N]<120 f32[N] .scheme=fp8 .n={N}"},
    {"tacit", "DequantizeGguf", 1, "u8[18a] .type=Q4_0 .shape=(32a)"},
    {"tacit", "LoraMatMul", 1, "T[m,k] T[k,n] T[k,r] T[r,n] .scale=0.5"},
    {"tacit", "GroupedMatMul", 1, "T[m,k] T[E,k,n] i64[m]<E"},
    {"tacit", "MoeRoute", 1, "T[m,E+1] .top_k=2 .normalize=0|1"},
};

static const recipe *find(const op_def *row)
{
    const char *domain = row->domain ? row->domain : "";
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        if (strcmp(recipes[i].name, row->name) == 0 && strcmp(recipes[i].domain, domain) == 0)
            return &recipes[i];
    return NULL;
}

const char *op_specimen_recipe(const op_def *row)
{
    const recipe *r = find(row);
    return r ? r->text : NULL;
}

int32_t op_first_opset(const op_def *row)
{
    const recipe *r = find(row);
    return r ? r->first_opset : 0;
}
