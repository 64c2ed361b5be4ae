/* SPDX-License-Identifier: Apache-2.0
 * The page is a fixed text around one JSON object; its script draws everything from that. */
#include "api/view_html.h"

static const char head[] =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<title>Tacit program</title>\n<style>\n"
    ":root{--bg:#fff;--fg:#1b1f24;--dim:#667;--line:#d8dde3;--box:#f5f7f9;--hi:#0b62c4}\n"
    "@media (prefers-color-scheme:dark){:root{--bg:#14171a;--fg:#e4e7ea;--dim:#98a2ad;"
    "--line:#333a42;--box:#1d2227;--hi:#6ab0ff}}\n"
    "body{font:14px/1.45 system-ui,sans-serif;background:var(--bg);color:var(--fg);margin:0 auto;"
    "max-width:1200px;padding:16px}\n"
    "h1{font-size:20px;margin:0 0 4px}h2{font-size:16px;margin:28px 0 8px}\n"
    ".dim{color:var(--dim)}table{border-collapse:collapse;width:100%;font-size:13px}\n"
    "td,th{text-align:left;padding:3px 8px;border-bottom:1px solid var(--line);"
    "vertical-align:top}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}\n"
    ".scroll{overflow:auto;max-height:520px;border:1px solid var(--line);border-radius:6px}\n"
    ".cards{display:flex;flex-wrap:wrap;gap:8px;margin:12px 0}.card{background:var(--box);"
    "border:1px solid var(--line);border-radius:6px;padding:8px 12px}\n"
    ".card b{display:block;font-size:17px}input{font:inherit;padding:4px 8px;margin:0 0 8px;"
    "border:1px solid var(--line);border-radius:4px;background:var(--bg);color:var(--fg)}\n"
    "svg text{font:11px system-ui,sans-serif;fill:var(--fg)}svg .edge{stroke:var(--dim);"
    "fill:none;stroke-width:1;opacity:.55}svg rect.node{fill:var(--box);stroke:var(--line)}\n"
    "#tip{position:fixed;pointer-events:none;background:var(--fg);color:var(--bg);padding:4px 8px;"
    "border-radius:4px;font-size:12px;display:none;max-width:420px}\n"
    "</style></head><body>\n<h1 id=\"title\"></h1><div class=\"dim\" id=\"sub\"></div>\n"
    "<div class=\"cards\" id=\"cards\"></div>\n"
    "<h2>Memory plan</h2><div class=\"dim\">Each block is a value or scratch: steps to the right, "
    "bytes upward.</div><div class=\"scroll\" id=\"plan\"></div>\n"
    "<h2>Cost by kernel</h2><div id=\"costs\"></div>\n"
    "<h2>Passes</h2><div id=\"passes\"></div>\n"
    "<h2>Program</h2><input id=\"find\" placeholder=\"filter by node, op or kernel\">"
    "<div class=\"scroll\" id=\"program\"></div>\n"
    "<h2>Graph</h2><div class=\"scroll\" id=\"graph\"></div>\n<div id=\"tip\"></div>\n"
    "<script type=\"application/json\" id=\"data\">";

static const char tail[] =
    "</script>\n<script>\n"
    "const D=JSON.parse(document.getElementById('data').textContent);\n"
    "const $=i=>document.getElementById(i);\n"
    "const esc=s=>String(s).replace(/[&<>\"]/g,c=>({'&':'&amp;','<':'&lt;','>':'&gt;','\"':"
    "'&quot;'}[c]));\n"
    "const size=b=>{const u=['B','KiB','MiB','GiB'];let i=0;while(b>=1024&&i<3){b/=1024;i++}"
    "return b.toFixed(i?1:0)+' '+u[i]};\n"
    "const hue=s=>{let h=0;for(const c of s)h=(h*31+c.charCodeAt(0))%360;return h};\n"
    "$('title').textContent=D.name;\n"
    "$('sub').textContent=D.steps.length+' steps, '+D.thunks.length+' thunks, best plan: '+"
    "D.plan.order+' order, '+D.plan.packing+' packing';\n"
    "$('cards').innerHTML=[['arena',size(D.plan.arena)],['lower bound',size(D.plan.bound)],"
    "['weights',size(D.weights)],['packed',size(D.packed)],['largest scratch',size(D.scratch)]]"
    ".map(([k,v])=>`<div class=card><span class=dim>${k}</span><b>${v}</b></div>`).join('');\n"
    "{const n=Math.max(1,D.steps.length),W=Math.max(900,n*4),H=360,w=W/n,top=Math.max(1,"
    "D.plan.arena);\n"
    "let s=`<svg width=${W} height=${H+18} role=img aria-label=\"memory plan\">`;\n"
    "for(const b of D.plan.slots){const y=H-(b.at+b.bytes)/top*H,h=Math.max(.5,b.bytes/top*H);\n"
    "s+=`<rect x=${b.birth*w} y=${y} width=${Math.max(1,(b.death-b.birth+1)*w-.5)} height=${h} "
    "fill=\"hsl(${hue(b.op)} 55% ${b.scratch?75:58}%)\" data-t=\"${esc(b.name)} (${esc(b.op)}): "
    "${size(b.bytes)} at ${b.at}, steps ${b.birth}–${b.death}\"/>`}\n"
    "$('plan').innerHTML=s+`<text x=4 y=${H+14}>step 0</text></svg>`}\n"
    "{const by={};let all=0;for(const t of D.thunks){const "
    "k=by[t.kernel]=by[t.kernel]||{n:0,f:0,b:0};k.n++;"
    "k.f+=t.flops;k.b+=t.bytes;all+=t.flops}\n"
    "$('costs').innerHTML='<table><tr><th>kernel<th class=n>thunks<th class=n>GFLOP<th class=n>"
    "share<th class=n>bytes</tr>'+Object.entries(by).sort((a,b)=>b[1].f-a[1].f||b[1].b-a[1].b)"
    ".map(([k,v])=>`<tr><td>${esc(k)}<td class=n>${v.n}<td class=n>${(v.f/1e9).toFixed(3)}"
    "<td class=n>${all?(100*v.f/all).toFixed(1):0}%<td class=n>${size(v.b)}</tr>`).join('')"
    "+'</table>'}\n"
    "$('passes').innerHTML='<table><tr><th>pass<th class=n>round<th class=n>rewrites<th class=n>"
    "nodes before<th class=n>after</tr>'+D.passes.map(p=>`<tr><td>${esc(p.pass)}<td class=n>"
    "${p.round}<td class=n>${p.rewrites}<td class=n>${p.before}<td class=n>${p.after}</tr>`)"
    ".join('')+'</table>';\n"
    "const rows=q=>{$('program').innerHTML='<table><tr><th class=n>#<th>node<th>op<th>kernel"
    "<th class=n>tiles<th>output</tr>'+D.thunks.map((t,i)=>[t,i]).filter(([t])=>!q||(t.node+' '+"
    "t.op+' '+t.kernel).toLowerCase().includes(q)).map(([t,i])=>`<tr><td class=n>${i}<td>"
    "${esc(t.node)}<td>${esc(t.op)}<td>${esc(t.kernel)}<td class=n>${t.tiles}<td>${esc(t.type)}"
    "</tr>`).join('')+'</table>'};rows('');\n"
    "$('find').oninput=e=>rows(e.target.value.toLowerCase());\n"
    "{const made={},depth=[],lane={},pos=[];D.nodes.forEach((n,i)=>{let d=0;for(const x of n.in)"
    "if(x in made)d=Math.max(d,depth[made[x]]+1);depth[i]=d;const l=lane[d]=(d in "
    "lane?lane[d]:-1)+1;"
    "pos[i]=[20+l*190,20+d*44];for(const y of n.out)made[y]=i});\n"
    "const W=20+190*(1+Math.max(0,...Object.values(lane))),H=60+44*Math.max(0,...depth);\n"
    "let s=`<svg width=${W} height=${H} role=img aria-label=graph>`;\n"
    "D.nodes.forEach((n,i)=>{for(const x of n.in)if(x in made){const[a,b]=pos[made[x]],[c,d]="
    "pos[i];s+=`<path class=edge d=\"M${a+85} ${b+28}C${a+85} ${b+44} ${c+85} ${d-16} ${c+85} "
    "${d}\"/>`}});\n"
    "D.nodes.forEach((n,i)=>{const[x,y]=pos[i];s+=`<rect class=node rx=4 x=${x} y=${y} width=170 "
    "height=28 data-t=\"${esc(n.name)}: ${esc(n.op)}(${esc(n.in.join(', '))}) → ${esc(n.type)}\"/>"
    "<text x=${x+8} y=${y+18} style=\"pointer-events:none\">${esc(n.op.slice(0,24))}</text>`});\n"
    "$('graph').innerHTML=s+'</svg>'}\n"
    "document.addEventListener('mousemove',e=>{const t=e.target.dataset&&e.target.dataset.t,b="
    "$('tip');b.style.display=t?'block':'none';if(t){b.textContent=t;b.style.left=Math.min("
    "e.clientX+12,innerWidth-430)+'px';b.style.top=e.clientY+14+'px'}});\n"
    "</script></body></html>\n";

/* JSON inside a script element: "</" must not end it. */
static void json_text(sbuf *out, const char *text)
{
    size_t start = out->length;
    sbuf_json(out, text);
    for (size_t i = start; !out->failed && i + 1 < out->length; i++)
        if (out->data[i] == '<')
            out->data[i] = '('; /* names are shown, not executed: any neutral character serves */
}

static void value_type(sbuf *out, const ir_value *v)
{
    char shape[IR_SHAPE_TEXT];
    sbuf_printf(out, "\"%s%s\"", tacit_dtype_text(v->type.dtype),
                ir_shape_text(&v->type.shape, shape));
}

static void print_slots(const prog_program *p, sbuf *out)
{
    bool first = true;
    for (uint32_t i = 0; i < p->plan.n_slots; i++) {
        const plan_slot *s = &p->plan.slots[i];
        if (s->place != PLAN_ARENA)
            continue;
        const ir_node *made = s->value ? s->value->producer : s->scratch_of;
        sbuf_text(out, first ? "{\"name\":" : ",{\"name\":");
        json_text(out, s->value ? s->value->name : "scratch");
        sbuf_text(out, ",\"op\":");
        json_text(out, made && made->type ? made->type : "");
        sbuf_printf(out, ",\"at\":%llu,\"bytes\":%llu,\"birth\":%u,\"death\":%u,\"scratch\":%d}",
                    (unsigned long long)s->offset, (unsigned long long)s->bytes, s->birth, s->death,
                    s->value == NULL);
        first = false;
    }
}

static void print_thunks(const prog_program *p, sbuf *out)
{
    for (uint32_t i = 0; i < p->n_thunks; i++) {
        const op_thunk *t = p->thunks[i].made;
        sbuf_text(out, i ? ",{\"node\":" : "{\"node\":");
        json_text(out, t->node->name);
        sbuf_text(out, ",\"op\":");
        json_text(out, t->node->type);
        sbuf_text(out, ",\"kernel\":");
        json_text(out, t->kernel);
        sbuf_printf(out, ",\"tiles\":%u,\"flops\":%.0f,\"bytes\":%llu,\"type\":", t->tiles,
                    t->flops, (unsigned long long)t->bytes);
        if (t->node->n_outputs && t->node->outputs[0])
            value_type(out, t->node->outputs[0]);
        else
            sbuf_text(out, "\"\"");
        sbuf_char(out, '}');
    }
}

static void print_names(sbuf *out, ir_value *const *values, uint32_t n)
{
    bool first = true;
    for (uint32_t i = 0; i < n; i++) {
        if (!values[i])
            continue;
        if (!first)
            sbuf_char(out, ',');
        json_text(out, values[i]->name);
        first = false;
    }
}

static void print_nodes(const ir_graph *g, sbuf *out)
{
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        const ir_node *n = g->nodes.data[i];
        sbuf_text(out, i ? ",{\"name\":" : "{\"name\":");
        json_text(out, n->name);
        sbuf_text(out, ",\"op\":");
        json_text(out, n->type);
        sbuf_text(out, ",\"in\":[");
        print_names(out, n->inputs, n->n_inputs);
        sbuf_text(out, "],\"out\":[");
        print_names(out, n->outputs, n->n_outputs);
        sbuf_text(out, "],\"type\":");
        if (n->n_outputs && n->outputs[0])
            value_type(out, n->outputs[0]);
        else
            sbuf_text(out, "\"\"");
        sbuf_char(out, '}');
    }
}

void api_view_html(const prog_program *p, const pass_report *passes, sbuf *out)
{
    sbuf_text(out, head);
    sbuf_text(out, "{\"name\":");
    json_text(out, p->graph->name);
    sbuf_printf(out,
                ",\"weights\":%llu,\"packed\":%llu,\"scratch\":%llu,\"plan\":{\"arena\":%llu,"
                "\"bound\":%llu,\"order\":",
                (unsigned long long)p->weight_bytes, (unsigned long long)p->packed_bytes,
                (unsigned long long)p->largest_scratch, (unsigned long long)p->plan.arena_bytes,
                (unsigned long long)p->plan.lower_bound);
    json_text(out, p->plan.best.order ? p->plan.best.order : "");
    sbuf_text(out, ",\"packing\":");
    json_text(out, p->plan.best.packing ? p->plan.best.packing : "");
    sbuf_text(out, ",\"slots\":[");
    print_slots(p, out);
    sbuf_text(out, "]},\"steps\":[");
    for (uint32_t i = 0; i < p->plan.n_steps; i++) {
        if (i)
            sbuf_char(out, ',');
        json_text(out, p->plan.steps[i]->name);
    }
    sbuf_text(out, "],\"thunks\":[");
    print_thunks(p, out);
    sbuf_text(out, "],\"passes\":[");
    for (uint32_t i = 0; i < passes->changes.count; i++) {
        const pass_change *c = &passes->changes.data[i];
        sbuf_text(out, i ? ",{\"pass\":" : "{\"pass\":");
        json_text(out, c->pass);
        sbuf_printf(out, ",\"round\":%u,\"rewrites\":%u,\"before\":%u,\"after\":%u}", c->round,
                    c->rewrites, c->nodes_before, c->nodes_after);
    }
    sbuf_text(out, "],\"nodes\":[");
    print_nodes(p->graph, out);
    sbuf_text(out, "]}");
    sbuf_text(out, tail);
}
