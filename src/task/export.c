/* SPDX-License-Identifier: Apache-2.0
 * Traces for people: Chrome/Perfetto JSON, and a page that needs nothing but a browser. */
#include "base/file.h"
#include "base/sbuf.h"
#include "task/task.h"

/* ---- Chrome ------------------------------------------------------------------------------- */

static void chrome_lanes(const tacit_task_runtime *rt, sbuf *b)
{
    sbuf_text(b, "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"args\":{\"name\":\"tacit "
                 "tasks\"}}");
    for (uint32_t w = 0; w < rt->threads; w++)
        sbuf_printf(b,
                    ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":%u,\"args\":"
                    "{\"name\":\"%s %u\"}}",
                    w, w ? "worker" : "orchestrator", w);
}

static void chrome_slices(const tacit_task_runtime *rt, const task_story *story, sbuf *b)
{
    for (size_t i = 0; i < story->slice_count; i++) {
        const task_slice *s = &story->slices[i];
        sbuf_text(b, ",\n{\"name\":");
        sbuf_json(b, task_slice_name(rt, s));
        sbuf_printf(b,
                    ",\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":1,\"tid\":%u,"
                    "\"args\":{\"task\":%u,\"status\":%u}}",
                    s->node ? "node" : "task", s->begin, s->end - s->begin, s->worker, s->task,
                    s->status);
    }
}

static void chrome_arrows(const task_story *story, sbuf *b)
{
    for (size_t i = 0; i < story->arrow_count; i++) {
        const task_slice *from = &story->slices[story->arrows[i].from];
        const task_slice *to = &story->slices[story->arrows[i].to];
        sbuf_printf(b,
                    ",\n{\"name\":\"dep\",\"cat\":\"dep\",\"ph\":\"s\",\"id\":%zu,\"ts\":%.3f,"
                    "\"pid\":1,\"tid\":%u}",
                    i, from->end, from->worker);
        sbuf_printf(b,
                    ",\n{\"name\":\"dep\",\"cat\":\"dep\",\"ph\":\"f\",\"bp\":\"e\",\"id\":%zu,"
                    "\"ts\":%.3f,\"pid\":1,\"tid\":%u}",
                    i, to->begin, to->worker);
    }
}

static void chrome_marks(const task_story *story, sbuf *b)
{
    for (size_t i = 0; i < story->mark_count; i++) {
        const task_mark *m = &story->marks[i];
        const char *ring = m->what < TACIT_TASK_RESOURCES
                               ? tacit_task_resource_name((tacit_task_resource)m->what)
                               : "?";
        switch (m->event) {
        case TASK_EV_PARK:
            sbuf_printf(b,
                        ",\n{\"name\":\"asleep\",\"cat\":\"idle\",\"ph\":\"X\",\"ts\":%.3f,"
                        "\"dur\":%.3f,\"pid\":1,\"tid\":%u}",
                        m->at, m->end - m->at, m->worker);
            break;
        case TASK_EV_STEAL:
            sbuf_printf(b,
                        ",\n{\"name\":\"steal from %u\",\"ph\":\"i\",\"s\":\"t\",\"ts\":%.3f,"
                        "\"pid\":1,\"tid\":%u}",
                        m->value, m->at, m->worker);
            break;
        case TASK_EV_STALL:
            sbuf_printf(b,
                        ",\n{\"name\":\"stall: %s ring, %u us\",\"ph\":\"i\",\"s\":\"p\","
                        "\"ts\":%.3f,\"pid\":1,\"tid\":%u}",
                        ring, m->value, m->at, m->worker);
            break;
        case TASK_EV_SCOPE:
            sbuf_printf(b,
                        ",\n{\"name\":\"scope depth\",\"ph\":\"C\",\"ts\":%.3f,\"pid\":1,"
                        "\"args\":{\"depth\":%u}}",
                        m->at, m->value);
            break;
        default:
            sbuf_printf(b,
                        ",\n{\"name\":\"%s ring\",\"ph\":\"C\",\"ts\":%.3f,\"pid\":1,\"args\":"
                        "{\"percent\":%.1f}}",
                        ring, m->at, m->value / 10.0);
        }
    }
}

static tacit_status write_out(sbuf *b, const char *path, tacit_error *err)
{
    tacit_status status = sbuf_str(b) ? file_write_all(path, b->data, b->length, err)
                                      : error_memory(err, "the text of a trace");
    sbuf_free(b);
    return status;
}

tacit_status tacit_task_trace_chrome(tacit_task_runtime *rt, const char *path, tacit_error *err)
{
    task_story story;
    TRY(task_story_make(rt, &story, err));
    sbuf b;
    sbuf_init(&b, rt->allocator);
    sbuf_text(&b, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
    chrome_lanes(rt, &b);
    chrome_slices(rt, &story, &b);
    chrome_arrows(&story, &b);
    chrome_marks(&story, &b);
    sbuf_text(&b, "\n]}\n");
    task_story_free(rt, &story);
    return write_out(&b, path, err);
}

/* ---- a page ------------------------------------------------------------------------------- */

static const char page_head[] =
    "<!doctype html><meta charset=utf-8><title>tacit tasks</title>\n"
    "<style>body{font:13px system-ui;margin:12px;background:#fff;color:#222}canvas{width:100%;"
    "border:1px solid #ccc}#tip{height:1.4em}</style>\n"
    "<h3>Tasks by worker</h3><p>Wheel: zoom. Drag: move. Click a task: its producers (left lines) "
    "and consumers.</p><canvas id=c></canvas><div id=tip></div><h4>Rings in use</h4>"
    "<canvas id=r></canvas>\n<script>\n";

static const char page_tail[] =
    "const c=document.getElementById('c'),r=document.getElementById('r'),tip=document."
    "getElementById('tip'),H=26;\n"
    "let t0=Infinity,t1=0;for(const s of S){t0=Math.min(t0,s[1]);t1=Math.max(t1,s[2])}\n"
    "if(!(t1>t0)){t0=0;t1=1}\n"
    "let a=t0,b=t1,pick=-1,drag=null;const hue=k=>'hsl('+(k*67%360)+',55%,62%)';\n"
    "const X=t=>(t-a)/(b-a)*c.width,Y=w=>w*H+4;\n"
    "function draw(){const d=devicePixelRatio||1;for(const e of[c,r])e.width=e.clientWidth*d;\n"
    "c.height=W*H+8;r.height=4*H+8;const g=c.getContext('2d'),q=r.getContext('2d');\n"
    "for(const [w,x,y] of P){g.fillStyle='#eee';g.fillRect(X(x),Y(w),X(y)-X(x),H-4)}\n"
    "S.forEach((s,i)=>{if(s[2]<a||s[1]>b)return;g.fillStyle=i==pick?'#000':hue(s[3]);\n"
    "g.fillRect(X(s[1]),Y(s[0]),Math.max(1,X(s[2])-X(s[1])),H-4)});\n"
    "g.strokeStyle='#c33';if(pick>=0)for(const [f,t] of E)if(f==pick||t==pick){g.beginPath();\n"
    "g.moveTo(X(S[f][2]),Y(S[f][0])+H/2-2);g.lineTo(X(S[t][1]),Y(S[t][0])+H/2-2);g.stroke()}\n"
    "for(const [k,t,v] of R){q.fillStyle=hue(k);const h=v/1000*(H-4);\n"
    "q.fillRect(X(t),k*H+H-h,2,h)}\n"
    "q.fillStyle='#222';['task','heap','dependence','record'].forEach((n,k)=>q.fillText(n,2,"
    "k*H+12))}\n"
    "function at(e){const x=e.offsetX*c.width/c.clientWidth,t=a+x/c.width*(b-a),w=Math.floor("
    "(e.offsetY*c.height/c.clientHeight-4)/H);return[t,S.findIndex(s=>s[0]==w&&s[1]<=t&&s[2]>=t)]}"
    "\n"
    "c.onwheel=e=>{e.preventDefault();const [t]=at(e),f=e.deltaY>0?1.25:.8;a=t-(t-a)*f;b=t+(b-t)*"
    "f;draw()};\n"
    "c.onmousedown=e=>drag=[e.offsetX,a,b];window.onmouseup=()=>drag=null;\n"
    "c.onmousemove=e=>{if(drag){const s=(e.offsetX-drag[0])/c.clientWidth*(drag[2]-drag[1]);a="
    "drag[1]-s;b=drag[2]-s;draw();return}const [,i]=at(e);tip.textContent=i<0?'':N[S[i][3]]+"
    "' task '+S[i][4]+', '+(S[i][2]-S[i][1]).toFixed(3)+' us at '+S[i][1].toFixed(3)};\n"
    "c.onclick=e=>{pick=at(e)[1];draw()};window.onresize=draw;draw();\n</script>\n";

static void page_marks(const task_story *story, sbuf *b)
{
    sbuf_text(b, "const P=[");
    for (size_t i = 0; i < story->mark_count; i++)
        if (story->marks[i].event == TASK_EV_PARK)
            sbuf_printf(b, "[%u,%.3f,%.3f],", story->marks[i].worker, story->marks[i].at,
                        story->marks[i].end);
    sbuf_text(b, "];\nconst R=[");
    for (size_t i = 0; i < story->mark_count; i++)
        if (story->marks[i].event == TASK_EV_RING)
            sbuf_printf(b, "[%u,%.3f,%u],", story->marks[i].what, story->marks[i].at,
                        story->marks[i].value);
    sbuf_text(b, "];\n");
}

/* Names as a JavaScript string; "<" must not end the script early. */
static void page_name(sbuf *b, const char *name)
{
    size_t from = b->length;
    sbuf_json(b, name);
    for (size_t i = from; i < b->length && b->data; i++)
        if (b->data[i] == '<')
            b->data[i] = '(';
    sbuf_char(b, ',');
}

tacit_status tacit_task_trace_html(tacit_task_runtime *rt, const char *path, tacit_error *err)
{
    task_story story;
    TRY(task_story_make(rt, &story, err));
    sbuf b;
    sbuf_init(&b, rt->allocator);
    sbuf_text(&b, page_head);
    sbuf_printf(&b, "const W=%u;\nconst N=[", rt->threads);
    for (uint32_t k = 0; k < 2 * TASK_KERNELS; k++)
        page_name(&b, task_slice_name(rt, &(task_slice){.kernel = k % TASK_KERNELS,
                                                        .node = k >= TASK_KERNELS}));
    sbuf_text(&b, "];\nconst S=[");
    for (size_t i = 0; i < story.slice_count; i++) {
        const task_slice *s = &story.slices[i];
        sbuf_printf(&b, "[%u,%.3f,%.3f,%u,%u],", s->worker, s->begin, s->end,
                    s->kernel + (s->node ? TASK_KERNELS : 0), s->task);
    }
    sbuf_text(&b, "];\nconst E=[");
    for (size_t i = 0; i < story.arrow_count; i++)
        sbuf_printf(&b, "[%u,%u],", story.arrows[i].from, story.arrows[i].to);
    sbuf_text(&b, "];\n");
    page_marks(&story, &b);
    sbuf_text(&b, page_tail);
    task_story_free(rt, &story);
    return write_out(&b, path, err);
}
